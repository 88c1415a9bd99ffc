"""What is hardly what it seems is warned of with its remedy, by the check and in the notes of a run."""

import numpy as np
import pytest

from apiece.data import inspect, load
from apiece.data.federation import Federation

ROWS = 40


def table(path, clients=("oslo", "rome"), label=None, **columns):
    """A table of ROWS rows with an age, the given columns (a function of the row's number), and a label."""
    rng = np.random.default_rng(0)
    lines = [",".join(["client", "age", *columns, "label"])]
    for i in range(ROWS):
        cells = [clients[i % len(clients)], f"{rng.normal():.4f}", *(column(i) for column in columns.values())]
        lines.append(",".join(map(str, [*cells, label(i) if label else "yes" if (i // 2) % 2 else "no"])))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def test_nothing_is_said_of_a_table_that_is_as_it_should_be(tmp_path):
    seen = inspect(table(tmp_path / "a.csv", town=lambda i: ["bath", "york"][i % 3 % 2], siblings=lambda i: i % 5))
    assert seen.warnings == [] and seen.federation.notes == ()


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"visit": lambda i: 7000 + i}, "column 'visit': a number or name of each row"),
        ({"visit": lambda i: 30 + (i * 7) % ROWS}, "column 'visit': a number or name of each row"),
        ({"visit": lambda i: i * i}, "column 'visit': a number or name of each row"),
        ({"who": lambda i: f"p{i * 37 % 101}"}, "column 'who': a number or name of each row"),
        ({"patient_id": lambda i: i // 3}, "(--exclude patient_id)"),
        ({"patientID": lambda i: i // 3}, "(--exclude patientID)"),
        ({"site": lambda i: 3}, "column 'site': the same value in every row"),
        ({"a": lambda i: 3, "b": lambda i: 4.5}, "columns 'a', 'b': the same value in every row"),
        ({"sick": lambda i: (i // 2) % 2}, "column 'sick': the label 'label' once more"),
        ({"sick": lambda i: ["f", "t"][(i // 2) % 2]}, "leave out what is no feature (--exclude sick)"),
        ({"dose": lambda i: 5e11 if i == 7 else i % 3}, "a.csv, row 9, column 'dose': huge, 5e+11; mend it"),
        (
            {"dose": lambda i: -999 if i % 9 == 4 else i % 7},
            "row 6 (the first of 4), column 'dose': -999, far from all",
        ),
        ({"dose": lambda i: 9999 if i == 0 else i % 7 + 0.5}, "if it stands for a gap, say so (--na 9999)"),
        ({"seen": lambda i: f"2024-01-{1 + i % 28:02d}"}, "column 'seen': dates, taken as words"),
        ({"seen": lambda i: f"{1 + i % 28}.3.2024"}, "say -D order=COLUMN"),
        (
            {"town": lambda i: ["bath", "?"][i % 3 % 2]},
            "(the first of 13), column 'town': '?' is taken as a word",
        ),
        ({"town": lambda i: ["Bath", "bath", "york"][i % 3]}, "words in column 'town' that differ in capitals"),
    ],
)
def test_a_suspect_column_is_warned_of_with_its_remedy(tmp_path, columns, told):
    seen = inspect(table(tmp_path / "a.csv", **columns))
    assert seen.problems == []
    assert any(told in warning for warning in seen.warnings), seen.warnings
    for warning in seen.warnings:
        if "unit scale" not in warning:
            assert warning in seen.federation.notes and ("--" in warning or "write them alike" in warning)


@pytest.mark.parametrize(
    "columns",
    [
        {"salary": lambda i: 1000 + (i * 7919) % 90001},  # all different, but in a wide range
        {"dose": lambda i: 99 if i % 9 == 4 else 60 + i % 30},  # near the others
        {"reflex": lambda i: "+-"[i % 3 % 2]},  # signs alone
        {"stage": lambda i: i % 2},  # as many values as classes, but not in step
    ],
)
def test_amounts_are_not_suspected(tmp_path, columns):
    warnings = inspect(table(tmp_path / "a.csv", **columns)).warnings
    assert [warning for warning in warnings if "unit scale" not in warning] == []


def test_a_target_once_more_in_other_units_is_warned_of(tmp_path):
    degrees = np.random.default_rng(1).normal(20, 5, ROWS).round(3)
    path = table(tmp_path / "a.csv", label=lambda i: degrees[i], fahrenheit=lambda i: 32 + 1.8 * degrees[i])
    assert any("column 'fahrenheit': the label 'label' once more" in warning for warning in inspect(path).warnings)


@pytest.mark.parametrize("name", ["id", "ID", "index", "__index_level_0__", "Unnamed: 0", "row_id", "rownames", ""])
def test_columns_that_number_rows_are_no_features_unless_they_are_named(tmp_path, name):
    path = table(tmp_path / "a.csv", **{name: lambda i: i})
    seen = inspect(path)
    assert seen.federation.features == ("age",) and seen.found["left_out"] == [name]
    assert seen.warnings[0].startswith("left out, as by name they only number rows: ")
    if name:
        assert load(path, features=["age", name]).features == ("age", name)


def test_an_index_of_fractions_is_a_feature(tmp_path):
    path = table(tmp_path / "a.csv", index=lambda i: 1.5 + i % 7)
    assert load(path).features == ("age", "index")


@pytest.mark.parametrize("blank", [" ", "\u00a0", "\u2009", "\u200b", "\ufeff", "\t"])
def test_blanks_around_clients_do_not_count_and_it_is_said(tmp_path, blank):
    seen = inspect(table(tmp_path / "a.csv", clients=("oslo", f"{blank}oslo{blank}", "rome")))
    assert seen.federation.ids.tolist() == ["oslo", "rome"]
    assert seen.warnings == [
        f"blanks around client names do not count (13 rows): {f'{blank}oslo{blank}'!r} is taken as 'oslo'"
    ]


@pytest.mark.parametrize("other", ["OSLO", "o slo", "\uff4fslo"])
def test_clients_that_look_alike_are_counted_and_not_merged(tmp_path, other):
    seen = inspect(table(tmp_path / "a.csv", clients=("oslo", other, "rome")))
    assert sorted(seen.federation.ids.tolist()) == sorted(["oslo", other, "rome"])
    assert "clients that differ in capitals or blanks only stay apart: " in seen.warnings[0]
    assert "'oslo' (14" in seen.warnings[0] and f"{other!r} (13" in seen.warnings[0]


def test_blanks_around_labels_do_not_count_and_capitals_are_warned_of(tmp_path):
    seen = inspect(table(tmp_path / "a.csv", label=lambda i: ["yes", " yes ", "no", "No"][i % 4]))
    assert seen.federation.classes == ("No", "no", "yes")
    assert "blanks around labels in column 'label' do not count (10 rows)" in seen.warnings[0]
    assert "labels in column 'label' that differ in capitals" in seen.warnings[1]


def test_one_client_is_warned_of(tmp_path):
    warning = inspect(table(tmp_path / "a.csv", clients=("oslo",))).warnings[0]
    assert warning.startswith("one client only, 'oslo': nobody to learn with") and "--client" in warning


def test_copies_in_train_and_test_are_counted(tmp_path):
    path = table(tmp_path / "a.csv")
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *lines, *lines[:20]]) + "\n")
    seen = inspect(path)
    split = [set(zip(part.owner, part.x[:, 0].tolist(), strict=True)) for part in
             (seen.federation.train, seen.federation.validation, seen.federation.test)]  # fmt: skip
    held = [(o, x) for part in (seen.federation.validation, seen.federation.test)
            for o, x in zip(part.owner, part.x[:, 0].tolist(), strict=True)]  # fmt: skip
    copies = sum(row in split[0] for row in held)
    assert copies > 0
    assert f"{copies} of {len(held)} rows of validation and test are copies of their client's train rows" in (
        "\n".join(seen.warnings)
    )


def test_rows_of_few_possible_answers_are_no_copies(tmp_path):
    path = table(tmp_path / "a.csv", **{name: lambda i, k=k: i * k % 7 % 3 for k, name in enumerate("bcd", 2)})
    assert not any("copies" in warning for warning in inspect(path, exclude="age").warnings)


def test_a_class_that_is_only_trained_is_warned_of(tmp_path):
    seen = inspect(table(tmp_path / "a.csv", label=lambda i: "rare" if i == 5 else ["no", "yes"][(i // 2) % 2]), seed=3)
    told = "\n".join(seen.warnings)
    assert ("class(es) in train only" in told) != ("not in train" in told) and "'rare'" in told


def test_notes_of_the_importer_stay_with_a_saved_federation(tmp_path):
    federation = load(table(tmp_path / "a.csv", site=lambda i: 3))
    assert len(federation.notes) == 1 and Federation.load(federation.save(tmp_path / "s")).notes == federation.notes
