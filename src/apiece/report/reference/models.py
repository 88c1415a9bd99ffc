"""docs/ref-models.md, generated from the catalog: `make docs`."""

from typing import Any

from apiece.models.catalog import MODELS, use_of

ABOUT = """\
`apiece compare --data fashion_mnist --model cnn2 -M width=16 -M hidden=[64]` takes a model by its name, with options
(`-M`); a spec has `[model]` with `name` and `[model.options]`; in Python it is `apiece.compare("fashion_mnist",
model="cnn2", model_options={"width": 16, "hidden": [64]})`, or the function itself, `apiece.models.cnn2((28, 28), 10,
width=16)`, for `apiece.fit`. `apiece models` prints this table. Shapes, classes and the number of different tokens come
from the federation.

`auto`, which is the default, is `softmax`, `linear` for amounts, and `char_lstm` for the next character.

Parameters have names (`conv0/w`, `hidden0/b`, `out/w`), by which [a part of a model can be kept
private](how-to-partial-personalization.md). Norms are group or layer norms: no model has statistics that somebody would
have to send. Convolutions, poolings and LSTMs carry gradients of their own, which stay fast inside compiled loops on a
CPU ([decision 15](decisions/0015-networks-on-a-cpu.md)). `apiece.models.adapted(model, rank=4)` adds low-rank adapters
to the dense and convolution layers of any of them, or to those that `where=` names by path. Flax, Equinox and PyTorch
modules of your own: [how to bring your own network](how-to-own-network.md)."""


def rows() -> list[dict[str, Any]]:
    """A row for each model: what it is, what examples it takes, for which tasks, and its options with their defaults.

    >>> [row["options"] for row in rows() if row["name"] == "cnn2"]
    [{'width': '32', 'hidden': '[512]'}]
    """
    return [
        {
            "name": row["name"],
            "summary": row["summary"].rstrip("."),
            "examples": use_of(row["name"]).examples,
            "tasks": list(use_of(row["name"]).tasks),
            "options": {option: written(default) for option, default in row["options"].items()},
        }
        for row in MODELS.rows()
    ]


def page() -> str:
    """The page.

    >>> page().splitlines()[0]
    '# Models'
    """
    lines = ["# Models", "", "Generated from the code by `make docs`; do not edit.", "", ABOUT, ""]
    lines += ["| name | what it is | examples | tasks | options |", "| --- | --- | --- | --- | --- |"]
    for row in (row for row in rows() if row["name"] in MODELS.own):
        tasks = ", ".join(task.replace("_", " ") for task in row["tasks"])
        options = ", ".join(f"`{name}` {value}" for name, value in row["options"].items())
        lines.append(f"| `{row['name']}` | {row['summary']} | {row['examples']} | {tasks} | {options} |")
    return "\n".join(lines) + "\n"


def written(value: Any) -> str:
    """An option's default as one would type it.

    >>> written((512,)), written(4)
    ('[512]', '4')
    """
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


if __name__ == "__main__":
    print(page(), end="")
