"""FFGG: partial personalization that survives delay and lies."""
