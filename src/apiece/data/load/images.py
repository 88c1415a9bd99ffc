"""A folder of pictures: <client>/<label>/<picture>, or <client>/<picture> with labels in <client>/labels.csv."""

from pathlib import Path
from typing import Any

import numpy as np

from apiece.data.load.notes import Notes, listed
from apiece.data.load.read import Table, read
from apiece.errors import UserError

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
LABELS = "labels.csv"


def is_folder_of_images(path: Path) -> bool:
    """Whether a folder holds a folder for each client with pictures, or with a folder of pictures for each label.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     is_folder_of_images(Path(folder))
    False
    """
    if not path.is_dir():
        return False
    return any(is_picture(file) for depth in ("*/*", "*/*/*") for file in path.glob(depth))


def read_images(path: Path, notes: Notes) -> Table:
    """The pictures of a folder as a table: image (uint8 [rows, height, width] or [..., 3]), label, client.

    All pictures need one size. If one of them has colours, all are read as red, green, blue.
    """
    listing = [
        (file, label, client.name)
        for client in sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
        for file, label in _labelled(client, notes)
    ]
    if not listing:
        raise UserError(f"{path} holds no pictures with a label; lay them out as <client>/<label>/<picture>")
    files, label, client = zip(*listing, strict=True)
    columns: dict[str, Any] = {"label": np.array(label, object), "client": np.array(client, object)}
    columns["image"] = decoded([file.read_bytes() for file in files], [str(file) for file in files])
    return Table(path, ["client", "label", "image"], len(files), columns.__getitem__, lambda i: i)


def read_own_images(path: Path, column: str = "image") -> Table:
    """The pictures of one client as a table: one picture, or a folder of them, where labels may be missing.

    Labels are those of labels.csv or, for pictures in folders, the folders' names; the pictures are in `column`.
    """
    try:
        files, labels = ([path], [None]) if path.is_file() else _any_labelled(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    if not files:
        raise UserError(f"{path} holds no picture ({', '.join(PICTURES)}); put them there, or into a folder each label")
    columns: dict[str, Any] = {column: decoded([file.read_bytes() for file in files], [str(file) for file in files])}
    if None not in labels:
        columns["label"] = np.array(labels, object)
    called = tuple(file.name if file == path else file.relative_to(path).as_posix() for file in files)
    return Table(path, list(columns), len(files), columns.__getitem__, lambda i: i, called=called)


def _any_labelled(folder: Path) -> tuple[list[Path], list[str | None]]:
    if (folder / LABELS).exists():
        notes = Notes()
        told = _labelled(folder, notes)
        if notes.problems:
            raise UserError(notes.problems[0])
        return [file for file, _ in told], [label for _, label in told]
    places = [(folder, None), *((place, place.name) for place in sorted(folder.iterdir()) if place.is_dir())]
    found = [(file, label) for place, label in places for file in sorted(place.iterdir()) if is_picture(file)]
    return [file for file, _ in found], [label for _, label in found]


def decoded(pictures: list[bytes], names: list[str]) -> np.ndarray:
    """Encoded pictures as one uint8 array: [pictures, height, width] if all are grey, and else [..., 3]."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise UserError("reading pictures needs Pillow: pip install 'apiece[images]'") from error
    from io import BytesIO

    opened = []
    for name, data in zip(names, pictures, strict=True):
        try:
            with Image.open(BytesIO(data)) as picture:
                grey = picture.mode in ("1", "L")
                opened.append(np.asarray(picture.convert("L" if grey else "RGB")))
        except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
            raise UserError(f"{name} is not a readable picture; mend or remove it") from error
        if opened[-1].shape[:2] != opened[0].shape[:2]:
            high, wide = opened[-1].shape[:2]
            raise UserError(
                f"{name} has {wide} x {high} pixels, {names[0]} has {opened[0].shape[1]} x {opened[0].shape[0]}; "
                f"bring all pictures to one size"
            )
    if all(picture.ndim == 2 for picture in opened):
        return np.stack(opened)
    return np.stack([np.repeat(p[..., None], 3, axis=-1) if p.ndim == 2 else p for p in opened])


def is_picture(file: Path) -> bool:
    """Whether a file is one of the pictures that are read, by its name.

    >>> is_picture(Path("no-such.png"))
    False
    """
    return file.suffix.lower() in PICTURES and not file.name.startswith(".") and file.is_file()


def _labelled(client: Path, notes: Notes) -> list[tuple[Path, str]]:
    """The pictures of a client with their labels."""
    direct = sorted(file for file in client.iterdir() if is_picture(file))
    if not (client / LABELS).exists():
        if direct:
            notes.problem(
                "label",
                f"{client}: {listed([file.name for file in direct])} have no label; put pictures into a folder for "
                f"each label, or write {LABELS} with the columns file and label",
            )
        folders = sorted(p for p in client.iterdir() if p.is_dir() and not p.name.startswith("."))
        return [(file, p.name) for p in folders for file in sorted(p.iterdir()) if is_picture(file)]
    table = read(client / LABELS, text=("file", "label"))
    if not {"file", "label"} <= set(table.names):
        raise UserError(f"{table.file} needs the columns file and label; it has {', '.join(table.names)}")
    told = dict(zip(table.column("file").tolist(), table.column("label").tolist(), strict=True))
    lacking = [name for name in told if not (client / str(name)).is_file()]
    if lacking:
        notes.problem("file", f"{table.file}: there is no picture {listed(lacking)} in {client}; mend the name")
    unnamed = [file.name for file in direct if file.name not in told]
    if unnamed:
        notes.problem("label", f"{table.file}: no label for {listed(unnamed)}; add a row or remove the picture")
    return [(client / str(name), str(label)) for name, label in told.items() if (client / str(name)).is_file()]
