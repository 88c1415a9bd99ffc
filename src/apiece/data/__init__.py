"""Data: federations, the ways to cut them, generators with known optima, and the user's own files."""

from apiece.data.deal import from_rows
from apiece.data.federation import Federation
from apiece.data.load.inspect import Inspection, inspect, load
from apiece.data.partition import PARTITIONS, assign
from apiece.data.sources.catalog import SOURCES, digits, source
from apiece.data.splits import Split

__all__ = [
    "PARTITIONS",
    "SOURCES",
    "Federation",
    "Inspection",
    "Split",
    "assign",
    "digits",
    "from_rows",
    "inspect",
    "load",
    "source",
]
