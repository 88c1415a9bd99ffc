"""Real federations by name, from the files in the folder that the environment variable APIECE_DATA names.

Each source says in its docstring which file it reads and what is in it; all go through the importer for users' own
data, and clients are the natural ones: writers, roles, people, hospitals, schools, sensors.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from apiece.data.federation import Federation
from apiece.data.load.inspect import examined, from_columns, load, loaded
from apiece.data.load.notes import Notes
from apiece.data.load.read import Table, read
from apiece.data.load.take import Wanted
from apiece.data.partition import partitioned
from apiece.data.splits import SPLITS
from apiece.errors import UserError

FOLDER = "APIECE_DATA"
SHARES = (0.6, 0.2, 0.2)
LEVELS_OF_HEART = ("cp", "restecg", "slope", "thal")


def file_of(name: str) -> Path:
    """The path of a file in the folder that APIECE_DATA names.

    >>> try: file_of("no-such-file.npz")
    ... except UserError as error: print("no-such-file.npz" in str(error) and "APIECE_DATA" in str(error))
    True
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        raise UserError(
            f"this source reads the file {name}: put it into a folder and name the folder in the environment variable "
            f"{FOLDER} (export {FOLDER}=/path/to/folder)"
        )
    file = Path(folder) / name
    if not file.is_file():
        raise UserError(f"there is no file {name} in {folder}, the folder that {FOLDER} names; put it there")
    return file


def mnist_by_writer(min_size: int | None = None, shares: Sequence[float] = SHARES, seed: int = 0) -> Federation:
    """MNIST digits by the person who wrote them: 539 writers, and 297 others as new clients (mnist_by_writer.npz).

    The file has x_train uint8 [60000, 28, 28], y_train, writer_train, hsf_train, and the same with _test. The writers
    of the test digits never train. `truth["personal_series"]` is the NIST series (hsf) that a writer belongs to: two
    groups of people, and so two real clusters.
    """
    file = file_of("mnist_by_writer.npz")
    table = read(file)
    both = lambda name: np.concatenate([table.column(f"{name}_train"), table.column(f"{name}_test")])
    names = ("x", "y", "writer", "hsf")
    _need(table, [f"{name}_{part}" for name in names for part in ("train", "test")])
    columns = {name: both(name) for name in names}
    columns["new"] = np.repeat([0, 1], [len(table.column("y_train")), len(table.column("y_test"))])
    wanted = Wanted("writer", "y", "x", new="new", min_size=min_size, shares=tuple(shares), seed=seed)
    federation = from_columns(file, columns, wanted)
    series = dict(zip(columns["writer"].astype(str).tolist(), columns["hsf"].tolist(), strict=True))
    told = lambda side: {"personal_series": np.array([series[writer] for writer in side.ids])}
    new = None if federation.new is None else replace(federation.new, truth=told(federation.new))
    return replace(federation, truth=told(federation), new=new)


def cifar10_subset(
    clients: int = 20,
    partition: str = "dirichlet_per_client",
    alpha: float | None = None,
    k: int | None = None,
    exponent: float | None = None,
    min_size: int = 5,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
) -> Federation:
    """10,000 CIFAR-10 pictures of 32x32 pixels, 1,000 a class, cut by a partition (cifar10_subset.npz).

    The file has x_train uint8 [8000, 32, 32, 3], y_train, the same with _test (2,000), and classes. Both parts are cut
    together; `alpha`, `k` and `exponent` go to the partition that has them.
    """
    table = read(file_of("cifar10_subset.npz"))
    _need(table, ["x_train", "y_train", "x_test", "y_test", "classes"])
    x, y = (np.concatenate([table.column(f"{name}_train"), table.column(f"{name}_test")]) for name in ("x", "y"))
    return partitioned(
        x,
        y,
        clients,
        partition,
        name="cifar10_subset",
        classes=table.column("classes").tolist(),
        shares=shares,
        seed=seed,
        alpha=alpha,
        k=k,
        exponent=exponent,
        min_size=min_size,
    )


def shakespeare_roles(
    min_characters: int = 1000, length: int = 80, shares: Sequence[float] = SHARES, seed: int = 0
) -> Federation:
    """The next character in the speeches of Shakespeare's roles, each a client (shakespeare_roles.parquet).

    The file has a row for each speech: play, role, order, text. A role's speeches are one text in the order of the
    play, cut into sequences of `length`; its beginning trains and its end tests. 670 of 1,567 roles have 1,000
    characters or more. `seed` changes nothing: the split is in time.
    """
    return load(
        file_of("shakespeare_roles.parquet"),
        client=["play", "role"],
        features="text",
        order="order",
        task="next_character",
        min_size=min_characters,
        length=length,
        shares=shares,
        seed=seed,
    )


def har_by_subject(shares: Sequence[float] = SHARES, seed: int = 0) -> Federation:
    """Six activities of 30 people, from the sensors of a phone (har_by_subject.npz): x is [128 times, 9 channels].

    The file has x float16 [10299, 9, 128], y, subject, classes (UCI HAR, Anguita et al. 2013). Windows overlap by half.
    """
    file = file_of("har_by_subject.npz")
    table = read(file)
    _need(table, ["classes"])
    federation = load(file, client="subject", shares=shares, seed=seed)
    parts = {part: getattr(federation, part) for part in SPLITS}
    turned = {p: replace(split, x=np.ascontiguousarray(split.x.transpose(0, 2, 1))) for p, split in parts.items()}
    note = (
        "windows overlap by half, so a random split puts halves of test windows into train: accuracies are optimistic"
    )
    return replace(federation, classes=tuple(table.column("classes").tolist()), notes=(note,), **turned)


def audiomnist_by_speaker(word: int | None = None, shares: Sequence[float] = SHARES, seed: int = 0) -> Federation:
    """Spoken digits of 60 people as pictures of sound (audiomnist_by_speaker.npz); `word=7`: seven against the rest.

    The file has x uint8 [30000, 32, 32] (log-mel), y, speaker. With `word` the task is that of a wake word: the second
    class is the word, and one example in ten has it.
    """
    federation = load(file_of("audiomnist_by_speaker.npz"), client="speaker", shares=shares, seed=seed)
    if word is None:
        return federation
    if str(word) not in federation.classes:
        raise UserError(f"word={word} is none of the words: {', '.join(federation.classes)}")
    place = federation.classes.index(str(word))
    parts = {part: getattr(federation, part) for part in SPLITS}
    parts = {part: replace(split, y=(split.y == place).astype(np.int32)) for part, split in parts.items()}
    return replace(federation, classes=("other", str(word)), **parts)


def heart_by_hospital(standardize: bool = True, shares: Sequence[float] = SHARES, seed: int = 0) -> Federation:
    """Heart disease in four hospitals, 920 patients with many missing values (heart_by_hospital.csv, UCI).

    The file has hospital, 13 attributes and num; the target is num > 0. A chol of 0 means that it was not measured.
    Pain type, ECG, slope and thal are categorical; gaps are filled by the rules of `data.encode`.
    """
    file = file_of("heart_by_hospital.csv")
    table = read(file, text=["hospital"])
    _need(table, ["hospital", "chol", "num", *LEVELS_OF_HEART])

    def column(name: str) -> np.ndarray:
        values = table.column(name)
        if name == "chol":
            return np.where(values == 0, np.nan, values.astype(np.float64))
        return np.where(values > 0, "sick", "healthy").astype(object) if name == "num" else values

    wanted = Wanted(
        "hospital",
        "num",
        categorical=LEVELS_OF_HEART,
        standardize=standardize,
        shares=tuple(shares),
        seed=seed,
    )
    return loaded(examined(file, [replace(table, column=column)], wanted, {}, Notes()))


def school_by_school(standardize: bool = True, shares: Sequence[float] = SHARES, seed: int = 0) -> Federation:
    """Exam scores of 15,362 pupils of 139 schools, a regression (school_by_school.npz).

    The file has x float32 [15362, 28], y, and task, the school.
    """
    file = file_of("school_by_school.npz")
    return load(file, client="task", task="regression", standardize=standardize, shares=shares, seed=seed)


def vehicle_by_sensor(standardize: bool = False, shares: Sequence[float] = SHARES, seed: int = 0) -> Federation:
    """The type of a vehicle from 23 sensors with 7 to 534 rows each (vehicle_by_sensor.npz).

    The file has x float32 [1860, 100], y (-1 or 1), and task, the sensor.
    """
    file = file_of("vehicle_by_sensor.npz")
    return load(file, client="task", task="classification", standardize=standardize, shares=shares, seed=seed)


def _need(table: Table, names: Sequence[str]) -> None:
    lacking = [name for name in names if name not in table.names]
    if lacking:
        raise UserError(
            f"{table.file} lacks {', '.join(lacking)}; it has {', '.join(table.names)}: is it another file?"
        )
