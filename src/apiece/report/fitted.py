"""A table that fits the terminal: long names fold, columns go on below; a number is never cut."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

NAME, PROSE = 18, 20  # columns that are left to a name, or to a text, before others have to go below
SHORT = 12  # and to a name where a little room decides between one table and two
LOOSE, TIGHT, TIGHTEST = BETWEEN = (3, 2, 1)  # columns between two columns


class FittedTable:
    """Columns with these titles, the first `left` of them text, flush left; the others are numbers, and stay whole.

    Where there is too little room the columns move together, then names and texts fold, then both once more; then the
    last columns become a table of their own, below, with the names again.

    >>> table = FittedTable(["method", "test", "gain"], [["a_method", "91.4 ±0.0", "+12.7 ±3.9"]])
    >>> Console(width=24).print(table)
    method         test
    ───────────────────
    a_method  91.4 ±0.0
    <BLANKLINE>
    method          gain
    ────────────────────
    a_method  +12.7 ±3.9
    """

    def __init__(self, titles: Sequence[str], rows: Sequence[Sequence[str | Text]], left: int = 1) -> None:
        self.titles, self.rows, self.left = list(titles), [list(row) for row in rows], left

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The table, or several; rich calls this when it knows how wide the terminal is."""
        room = options.max_width
        for at, (columns, between) in enumerate(self._blocks(room)):
            yield from [Text()] * (at > 0)
            yield self._table(columns, between, room)

    def _blocks(self, room: int) -> list[tuple[list[int], int]]:
        """Which columns go into which table, and how much room there is between them."""
        every = list(range(len(self.titles)))
        for between in BETWEEN:
            if self._width(every, between) <= room:
                return [(every, between)]
        blocks, mine = [], every[: self.left]
        for column in every[self.left :]:
            if len(mine) > 1 and self._width([*mine, column], TIGHT) > room:
                blocks.append((mine, TIGHT))
                mine = [0]
            mine.append(column)
        return [*blocks, (mine, TIGHT)]

    def _width(self, columns: Sequence[int], between: int) -> int:
        """With so much between two columns; where that is little, names and texts fold."""
        plain, name = between == LOOSE, SHORT if between == TIGHTEST else NAME
        least = [self._plain(at) if plain else min(self._natural(at), self._least(at, name)) for at in columns]
        return sum(least) + between * (len(columns) - 1) + 2 * plain

    def _natural(self, column: int) -> int:
        """As wide as its longest line."""
        cells = [self.titles[column], *(str(row[column]) for row in self.rows)]
        return max(cell_len(line) for cell in cells for line in cell.split("\n"))

    def _plain(self, column: int) -> int:
        """A text always folds, a name or a number does not."""
        return min(self._natural(column), PROSE) if 0 < column < self.left else self._natural(column)

    def _least(self, column: int, name: int) -> int:
        return name if column == 0 else PROSE if column < self.left else self._natural(column)

    def _table(self, columns: Sequence[int], between: int, room: int) -> Table:
        tight, pad = between < LOOSE, int(between > TIGHTEST)
        table = Table(
            box=box.SIMPLE_HEAD, padding=(0, pad), show_edge=False, collapse_padding=tight, pad_edge=not tight
        )
        fits = self._width(columns, between) <= room
        for column in columns:
            text = column < self.left
            held = None if text or not fits else self._natural(column)
            table.add_column(self.titles[column], justify="left" if text else "right", overflow="fold", min_width=held)
        for row in self.rows:
            table.add_row(*(row[column] for column in columns))
        return table
