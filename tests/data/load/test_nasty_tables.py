"""Tables as people have them, through the command: every message fits 80 columns and names a remedy; none crashes."""

import numpy as np
import pytest
from typer.testing import CliRunner

from apiece.cli import app

ROWS = range(60)
RNG = np.random.default_rng(0)
NUMBERS = [f"{number:.3f}" for number in RNG.normal(size=200)]


def table(header, row, delimiter=","):
    lines = [header, *(delimiter.join(map(str, row(i, f"c{i % 3}", NUMBERS[i], i // 3 % 2))) for i in ROWS)]
    return "\n".join(lines) + "\n"


PLAIN = lambda i, c, x, y: (c, x, y)
german = lambda number: number.replace(".", ",")
# name: (the file, flags, what is said, exit code)
TABLES = {
    "the index of a data frame": (
        table(",Unnamed: 0,client,age,label", lambda i, c, x, y: (i, i, c, x, y)),
        (), "left out, as by name they only number rows: '(without a name)', 'Unnamed: 0'", 0,
    ),
    "semicolons": (
        table("client;age;label", lambda i, c, x, y: (c, german(x), y), ";"), (), "(--delimiter ';')", 2,
    ),
    "decimal commas": (
        table("client;age;label", lambda i, c, x, y: (c, german(x), y), ";"),
        ("--delimiter", ";"), "before decimals, or say so (--decimal ,)", 2,
    ),
    "semicolons and decimal commas, as they are": (
        table("client;age;label", lambda i, c, x, y: (c, german(x), y), ";"),
        ("--delimiter", "auto", "--decimal", ","), "no problems", 0,
    ),
    "another encoding": (
        table("client,größe,label", PLAIN).encode("latin-1"), (), "save the file as CSV in UTF-8", 2,
    ),
    "two bytes a letter": (
        table("client,age,label", PLAIN).encode("utf-16"), (), "save the file as CSV in UTF-8", 2,
    ),
    "names in all spellings": (
        table("client, age ,label", lambda i, c, x, y: (("c1", " c1", "C1", "c2\u00a0")[i % 4], f" {x}", y)),
        (), "'C1' (15 rows) and 'c1' (30); if they are one, write them alike", 0,
    ),
    "numbers that mean nothing": (
        table("client,age,dose,label", lambda i, c, x, y: (c, -999 if i % 7 == 0 else x, 1e12 if i == 4 else i % 9, y)),
        (), "-999, far from all others; if it stands for a gap, say so (--na -999)", 0,
    ),
    "question marks": (
        table("client,age,label", lambda i, c, x, y: (c, "?" if i % 7 == 0 else x, y)),
        (), "call it missing (--na '?')", 2,
    ),
    "question marks, as they are": (
        table("client,age,label", lambda i, c, x, y: (c, "?" if i % 7 == 0 else x, y)),
        ("--na", "?"), "filled: 'age': 9 of 60 missing", 0,
    ),
    "the label twice": (
        table("client,age,code,label", lambda i, c, x, y: (c, x, "DH"[y], y)),
        (), "the label 'label' once more", 0,
    ),
    "folds": (
        table("client,age,fold,label", lambda i, c, x, y: (c, x, i % 5, y)),
        (), "leave the column out (--exclude fold)", 2,
    ),
    "folds, left out": (
        table("client,age,fold,label", lambda i, c, x, y: (c, x, i % 5, y)),
        ("--exclude", "fold"), "left_out: fold", 0,
    ),
    "train and test": (
        table("client,age,Set,label", lambda i, c, x, y: (c, x, ("Train", "train ", "TEST")[i // 3 % 3], i // 4 % 2)),
        (), "no validation rows; 25% of each client's train rows, at random, are taken for it", 0,
    ),
    "no header": (table("c9,0.5,1", PLAIN), (), "add a header row", 2),
    "a client for each row": (
        table("patient,age,label", lambda i, c, x, y: (f"p{i}", x, y)),
        ("--client", "patient"), "name another column that tells clients apart (--client COLUMN)", 2,
    ),
    "cells too many, and a quote that never ends": (
        table("client,age,label", lambda i, c, x, y: (c, x, y, *("x" * (i == 5)))) + '"c1,3,1\n',
        (), "row 7: 4 cells where the header has 3", 2,
    ),
    "a note for each row": (
        table("client,age,note,label", lambda i, c, x, y: (c, x, f'"row {i}, at length, [bold]markup[/]"', y)),
        ("--exclude", "note"), "left_out: note", 0,
    ),
    "percent": (table("client,share,label", lambda i, c, x, y: (c, f"{i % 50}%", y)), (), "write plain numbers", 2),
    "thousands": (
        table("client,pay,label", lambda i, c, x, y: (c, f'"{1000 + 977 * i:,}"', y)), (), "write 1234, not 1,234", 2,
    ),
    "dates": (
        table("client,when,age,label", lambda i, c, x, y: (c, f"2024-01-{1 + i % 28:02}", x, y)),
        (), "dates, taken as words", 0,
    ),
    "dates to sort by": (
        table("client,when,age,label", lambda i, c, x, y: (c, f"{1 + i % 28}.3.2024", x, y)),
        ("-D", "order=when"), "write dates as 2024-03-31", 2,
    ),
    "one client": (table("client,age,label", lambda i, c, x, y: ("c1", x, y)), (), "one client only, 'c1'", 0),
    "a column of nothing but names": (
        table("client,name,label", lambda i, c, x, y: (c, f"Dr. {x}", y)),
        ("-D", "max_levels=9"), "(--exclude name)", 2,
    ),
    "markup for a name": (
        table("client,[red]age,label", lambda i, c, x, y: (c, "old" if i == 3 else x, y)),
        (), "column '[red]age': 'old'", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_nasty_table_is_read_or_explained_in_80_columns(tmp_path, monkeypatch, name):
    text, flags, told, code = TABLES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    result = CliRunner().invoke(app, ["data", "check", "t.csv", *flags])
    assert result.exit_code == code and isinstance(result.exception, SystemExit | None), result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert " ".join(told.split()) in " ".join(result.stdout.split())
    assert (result.stdout.rstrip().endswith("no problems")) == (code == 0)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
