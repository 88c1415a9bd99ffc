"""Shared and private parts of a model, by parameter path.

A part is a predicate on a path such as "layers/0/w", or words for one:

| words               | the parameters of ...                                                                  |
| ------------------- | -------------------------------------------------------------------------------------- |
| `input`             | the first layer                                                                        |
| `output`            | the last layer                                                                         |
| `norm`              | normalization layers (a name on the path contains "norm", or is bn, gn, ln and a number) |
| `adapter`           | low-rank adapters (`apiece.models.adapter`; a name on the path contains "adapter" or "lora") |
| `hidden1, out/b`    | everything under these paths                                                           |
| `not output`        | everything else                                                                        |

A layer is a group of parameters side by side (a weight and its bias). Layers stand in the order in which the model
lists them: a list's own order; names by the numbers in them (hidden2 before hidden10), except that names such as
"embed" or "stem" come first and names such as "out" or "head" last. Normalization and adapters are no layers.

Splitting keeps the tree's structure and puts None where a parameter belongs to the other part, so each part is itself
a pytree (JAX sees no leaf in None) and `join` undoes it.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence

import jax

from apiece.errors import UserError, suggest
from apiece.protocol import Loss, Params, Tree, trained_as

__all__ = ["Part", "paths", "under", "layers", "part", "part_of", "split", "divide", "join", "given", "path_name"]

Part = Callable[[str], bool]

WORDS = ("input", "output", "norm", "adapter")
NORM = re.compile(r"norm(?!al)|^(bn|gn|ln)_?\d*$", re.IGNORECASE)
ADAPTER = re.compile(r"adapter|lora", re.IGNORECASE)
FIRST = re.compile(r"^(in|input|stem|embed\w*|first\w*)$", re.IGNORECASE)
LAST = re.compile(r"^(out|output|head|classifier|logits|last\w*)$", re.IGNORECASE)


def paths(params: Params) -> list[str]:
    """The path of every parameter, in the tree's order.

    >>> paths({"hidden": {"w": 1.0, "b": 0.0}, "out": {"w": 2.0}})
    ['hidden/b', 'hidden/w', 'out/w']
    """
    return [path_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]


def under(*prefixes: str) -> Part:
    """The parameters whose path is, or lies under, one of the prefixes.

    >>> under("out")("out/w"), under("out")("output/w")
    (True, False)
    """
    return lambda path: any(path == p or path.startswith(p + "/") for p in prefixes)


def layers(names: Sequence[str], listed: bool = False) -> list[str]:
    """The layers that parameters of these paths form, first to last; `listed`: the names are in that order already.

    >>> layers(["hidden10/w", "hidden2/b", "hidden2/w", "norm/scale", "out/w", "embed/w"])
    ['embed', 'hidden2', 'hidden10', 'out']
    """
    plain = (name for name in names if not (_named(NORM)(name) or _named(ADAPTER)(name)))
    found = list(dict.fromkeys(name.rpartition("/")[0] for name in plain))
    return found if listed else sorted(found, key=_place)


def part(words: str, names: Sequence[str], listed: bool = False) -> Part:
    """The part of a model that the words mean; `names` are the paths of all its parameters (see `layers`).

    >>> mine = part("output", ["hidden0/w", "out/b", "out/w"])
    >>> mine("out/b"), mine("hidden0/w")
    (True, False)
    """
    if words.startswith("not "):
        other = part(words.removeprefix("not ").strip(), names, listed)
        return lambda path: not other(path)
    if words in ("input", "output"):
        order = layers(names, listed) or [""]
        layer = order[0 if words == "input" else -1]
        plain = lambda path: not (_named(NORM)(path) or _named(ADAPTER)(path))
        return lambda path: path.rpartition("/")[0] == layer and plain(path)
    if words in ("norm", "adapter"):
        return _named(NORM if words == "norm" else ADAPTER)
    return under(*(word.strip().strip("/") for word in words.split(",")))


def part_of(params: Params, words: str | Part, option: str = "private") -> Part:
    """The part of this model that the words mean, which may be all of it; an error that names the option if it is none.

    >>> part_of({"w": 1.0, "b": 0.0}, "output")("b")
    True
    """
    names = paths(params)
    listed = isinstance(params, OrderedDict)  # a torch module's, in its own order
    mine = part(words, names, listed) if isinstance(words, str) else words
    if not any(mine(name) for name in names):
        near = "" if not isinstance(words, str) or words in WORDS else f" ({suggest(words, [*WORDS, *names])})"
        rule, known = _rule(words, option), ", ".join(names)
        raise UserError(f"no parameter is {option} under {rule}{near}; the model's parameters are: {known}")
    return mine


def split(params: Params, private: str | Part) -> tuple[Params, Params]:
    """(shared, private): two trees of the same structure, None where a parameter is in the other.

    >>> shared, own = split({"hidden": {"w": 1.0}, "out": {"w": 2.0}}, "output")
    >>> shared, own
    ({'hidden': {'w': 1.0}, 'out': {'w': None}}, {'hidden': {'w': None}, 'out': {'w': 2.0}})
    """
    names, mine = paths(params), part_of(params, private)
    if all(mine(name) for name in names):
        instead = f"name a part of it, for example private = '{names[0]}', or " if len(names) > 1 else ""
        rule = _rule(private, "private")
        raise UserError(f"every parameter is private under {rule}: nothing is left to share ({instead}use 'local')")
    return divide(params, mine)


def divide(params: Params, private: Part) -> tuple[Params, Params]:
    """As `split`, where either part may be everything.

    >>> divide({"w": 1.0}, lambda path: False)
    ({'w': 1.0}, {'w': None})
    """
    pick = lambda mine: jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf if private(path_name(path)) == mine else None, params
    )
    return pick(False), pick(True)


def join(shared: Params, private: Params) -> Params:
    """The whole model from its two parts.

    >>> join({"a": 1.0, "b": None}, {"a": None, "b": 2.0})
    {'a': 1.0, 'b': 2.0}
    """
    return jax.tree.map(lambda s, p: p if s is None else s, shared, private, is_leaf=lambda leaf: leaf is None)


def given(loss: Loss, other: Params) -> Loss:
    """The loss as a function of one part of the model, the other part held where it is.

    >>> whole = lambda params, batch, key: params["a"] * params["b"]
    >>> given(whole, {"a": 3.0, "b": None})({"a": None, "b": 2.0}, None, None)
    6.0
    """
    return trained_as(loss, lambda own, batch, key: loss(join(own, other), batch, key))


def path_name(path: tuple) -> str:
    """A parameter's path in JAX's terms, as text.

    >>> path_name((jax.tree_util.DictKey("out"), jax.tree_util.SequenceKey(0)))
    'out/0'
    """
    return "/".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path)


def _rule(words: str | Part, option: str) -> str:
    return f"{option} = '{words}'" if isinstance(words, str) else "this rule"


def _named(pattern: re.Pattern) -> Part:
    return lambda path: any(pattern.search(name) for name in path.split("/"))


def _place(layer: str) -> tuple:
    """Where a layer stands among its fellows: by the first name on its path that says so, then by numbers."""
    names = layer.split("/")
    ends = (-1 if FIRST.match(name) else 1 for name in names if FIRST.match(name) or LAST.match(name))
    return next(ends, 0), [_natural(name) for name in names]


def _natural(name: str) -> Tree:
    """ "hidden10" as ("hidden", 10): numbers compare as numbers."""
    return [(0, int(bit), "") if bit.isdigit() else (1, 0, bit) for bit in re.split(r"(\d+)", name) if bit]
