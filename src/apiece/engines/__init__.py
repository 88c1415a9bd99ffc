"""Engines run methods. `vectorized`: whole runs in one compiled program; `remote`: client by client, over bytes."""
