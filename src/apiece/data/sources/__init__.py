"""Federations by name."""
