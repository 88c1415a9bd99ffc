"""Engines that simulate all clients on this machine's devices, or on those of several machines."""
