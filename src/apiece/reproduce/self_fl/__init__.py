"""Self-FL: personalization driven by uncertainty."""
