"""The simulated world: who is there, who is slow, who fails; drawn on the host from the seed."""
