"""`python -m apiece.cli ...`."""

from apiece.cli import main

main()
