"""One way from a name, or a thing of one's own, and options to the thing: bounds, types, suggestions, plug-ins."""

import functools
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import pytest

from apiece.data import SOURCES
from apiece.errors import UserError
from apiece.registry import (
    FromZero,
    NotNegative,
    Number,
    Option,
    Passes,
    Positive,
    Pull,
    Registry,
    Share,
    StepSize,
    Tolerance,
    TunedShare,
    Whole,
    read_options,
)


def bake(
    flour,
    *,
    heat: StepSize = 0.5,
    salt: Pull = 0.1,
    yeast: Share = 0.5,
    eggs: FromZero = 2,
    turns: Passes | None = None,
    water: Positive | None = None,
    rest: NotNegative | None = 1.0,
    loaves: int = 1,
    tilt: float = -0.5,
    crisp: bool = True,
    shape: str = "round",
    weights: Any = (),
    oven=None,
):
    """Bake bread. Of flour, mostly.

    A second paragraph.
    """
    return flour, heat, eggs, turns


BREADS = Registry("bread", positional=1, given=("oven",)).add(bake=bake)
WHERE = "option '{}' of bread 'bake'"


def message_of(call, *args):
    with pytest.raises(UserError) as caught:
        call(*args)
    return str(caught.value)


# Values.


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("heat", 1, 1.0),
        ("heat", np.float32(0.5), 0.5),
        ("salt", 0, 0.0),
        ("eggs", 0, 0),
        ("eggs", 2.0, 2),
        ("turns", None, None),
        ("turns", 3.0, 3),
        ("water", 0.1, 0.1),
        ("rest", None, None),
        ("rest", 0, 0.0),
        ("loaves", np.int64(3), 3),
        ("tilt", -2, -2.0),
        ("crisp", False, False),
        ("shape", "long", "long"),
        ("weights", [], ()),
    ],
)
def test_a_possible_value_is_taken_and_converted_where_that_loses_nothing(name, given, value):
    found = BREADS.check("bake", {name: given})[name]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("heat", 0, "must be above 0, not 0"),
        ("heat", -0.1, "must be above 0, not -0.1"),
        ("heat", None, "is a finite number, not None"),
        ("heat", float("inf"), "is a finite number, not inf"),
        ("heat", float("nan"), "is a finite number, not nan"),
        ("heat", True, "is a finite number, not True"),
        ("heat", "hot", "is a finite number, not 'hot'"),
        ("salt", -1, "must be at least 0, not -1"),
        ("yeast", 1.5, "must be at most 1, not 1.5"),
        ("yeast", -0.5, "must be at least 0, not -0.5"),
        ("eggs", -1, "is a whole number of at least 0, not -1"),
        ("eggs", 1.5, "is a whole number of at least 0, not 1.5"),
        ("turns", 0, "is a whole number of at least 1, not 0"),
        ("water", 0.0, "must be above 0, not 0.0"),
        ("rest", -1.0, "must be at least 0, not -1.0"),
        ("loaves", 0, "is a whole number of at least 1, not 0"),
        ("crisp", 1, "is true or false, not 1"),
        ("shape", 3, "is a word, not 3"),
        ("weights", "all", "is a list of numbers, or of equally long lists of numbers, not 'all'"),
        ("weights", [[1, 2], [3]], "is a list of numbers, or of equally long lists of numbers, not [[1, 2], [3]]"),
        ("weights", 1.0, "is a list of numbers, or of equally long lists of numbers, not 1.0"),
    ],
)
def test_an_impossible_value_is_named_with_its_option(name, given, words):
    assert message_of(BREADS.check, "bake", {name: given}) == f"{WHERE.format(name)} {words}"


def test_every_idea_has_its_bounds_and_its_range():
    rule = lambda hint: Option("x", 1.0, hint).rule
    assert rule(StepSize) == Number(above_zero=True, tuned=(0.01, 3.0))
    assert rule(Pull) == Number(tuned=(0.01, 10.0))
    assert rule(Tolerance) == Number(above_zero=True, tuned=(0.1, 10.0))
    assert rule(Share) == Number(most=1) and rule(TunedShare) == Number(most=1, tuned=(0.1, 0.9))
    assert rule(Positive) == Number(above_zero=True) and rule(NotNegative) == Number()
    assert rule(FromZero) == Whole(0) and rule(Passes) == Whole(1) == rule(Passes | None)


def test_tuning_chooses_what_declares_a_range_unless_it_is_fixed():
    assert BREADS.ranges("bake") == {"heat": (0.01, 3.0), "salt": (0.01, 10.0)}
    assert BREADS.ranges("bake", fixed={"heat": 1.0}) == {"salt": (0.01, 10.0)}


def test_all_options_are_the_given_ones_and_the_defaults_of_the_rest():
    every = BREADS.complete("bake", {"heat": 2, "eggs": 0})
    assert (every["heat"], every["eggs"], every["salt"], every["turns"]) == (2.0, 0, 0.1, None)
    assert list(every) == list(BREADS.options("bake")) == list(BREADS.defaults("bake"))
    assert "flour" not in every and "oven" not in every


def test_plain_types_are_checked_strictly_where_a_registry_says_so():
    def cut(clients: int = 3, shares: Sequence[float] = (1.0,), table: np.ndarray | None = None, seed: int = 0):
        return clients, shares

    sources = Registry("data", values="typed").add(cut=cut)
    assert sources.make("cut", {"clients": np.int64(5), "shares": [1, 0]}) == (5, [1, 0])
    assert sources.check("cut", {"table": np.zeros(2)})["table"].shape == (2,)
    for options, words in [
        ({"clients": "many"}, "option 'clients' of data 'cut' = 'many' is wrong: input should be a valid integer"),
        ({"clients": 2.0}, "option 'clients' of data 'cut' = 2.0 is wrong: input should be a valid integer"),
        ({"shares": 0.5}, "option 'shares' of data 'cut' = 0.5 is wrong: input should be an instance of sequence"),
        ({"seed": -1}, "option 'seed' of data 'cut' = -1 is wrong: a seed is not negative"),
    ]:
        assert message_of(sources.make, "cut", options).startswith(words)


def test_a_type_that_can_be_an_array_does_not_stand_in_the_way():
    assert SOURCES.make("linear", {"clients": 3, "features": 2, "spectrum": [1.0, 0.5]}).clients == 3


def test_the_factory_itself_may_be_the_one_that_checks():
    odd = object()
    assert Registry("thing", values="factory").make(lambda *, x=1: x, {"x": odd}) is odd


# Names.


def test_a_wrong_name_suggests_the_nearest_or_lists_all():
    assert message_of(BREADS.find, "bakke") == "unknown bread 'bakke': did you mean 'bake'?"
    assert message_of(BREADS.find, "zzz") == "unknown bread 'zzz': known: bake"
    assert message_of(BREADS.check, "bake", {"egs": 1}) == "bread 'bake' has no option 'egs': did you mean 'eggs'?"
    nothing = Registry("bread").add(plain=lambda: None)
    assert message_of(nothing.check, "plain", {"egs": 1}) == "bread 'plain' has no option 'egs': it has none"


def test_what_the_house_fills_in_is_no_option():
    assert "has no option 'flour'" in message_of(BREADS.check, "bake", {"flour": 1})
    assert "has no option 'oven'" in message_of(BREADS.check, "bake", {"oven": 1})
    assert BREADS.takes("bake", "oven") and not BREADS.takes("bake", "stove")


def test_an_option_without_a_default_is_asked_for():
    needy = Registry("attack").add(flip=lambda *, classes: classes)
    assert message_of(needy.make, "flip", {}) == "attack 'flip' needs the option 'classes'"
    assert message_of(needy.complete, "flip", {}) == "attack 'flip' needs the option 'classes'"
    assert needy.make("flip", {"classes": 3}) == 3 and needy.complete("flip", {"classes": 3}) == {"classes": 3}


def test_a_factory_and_its_place_stand_for_a_name():
    assert BREADS.make(bake, {"heat": 1}, "rye") == ("rye", 1.0, 2, None)
    assert BREADS.find("apiece.methods.ditto:ditto").__name__ == "ditto"
    assert BREADS.find("apiece.registry:Registry.find").__name__ == "find"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_package.bread:bake", "bread 'no_package.bread:bake': there is no module 'no_package.bread' to import"),
        (":bake", "bread ':bake': there is no module ''"),
        ("apiece.tree:bake", "bread 'apiece.tree:bake': the module 'apiece.tree' has no 'bake'"),
        ("apiece.tree:", "bread 'apiece.tree:': the module 'apiece.tree' has no ''"),
        ("apiece.methods:USUAL", "bread 'apiece.methods:USUAL' is no function that makes one, but ('local'"),
        (3, "a bread is given by its name or by the function that makes it, not by 3"),
    ],
)
def test_a_wrong_place_says_what_is_missing(path, words):
    assert message_of(BREADS.find, path).startswith(words)


def test_a_list_of_all_is_read_from_signatures_and_texts():
    (row,) = BREADS.rows()
    assert row["name"] == "bake" and row["summary"] == "Bake bread. Of flour, mostly."
    assert row["options"] == BREADS.defaults("bake")
    assert Registry("bread").add(plain=lambda: None).rows() == [{"name": "plain", "summary": "", "options": {}}]


# Strangers.


def test_a_stranger_needs_no_annotations():
    def mine(loss, *, lr=0.1, depth=0, steps=5, warm=True, start=None, below=-1, **more):
        return lr

    registry = Registry("method", positional=1)
    options = {"lr": 1, "depth": 0, "steps": 2.0, "warm": False, "start": "anywhere", "below": -1}
    assert registry.check(mine, options) == {**options, "lr": 1.0, "steps": 2}
    assert "'depth' of method 'mine' is a whole number of at least 0" in message_of(registry.check, mine, {"depth": -1})
    assert "'steps' of method 'mine' is a whole number of at least 1" in message_of(registry.check, mine, {"steps": 0})
    assert registry.ranges(mine) == {} and "more" not in registry.options(mine)


def test_annotations_that_only_a_type_checker_can_read_are_no_obstacle():
    def mine(loss, *, lr: "Unheard" = 0.1):  # noqa: F821
        return lr

    assert Registry("method", positional=1).check(mine, {"lr": 2}) == {"lr": 2.0}
    assert Registry("method", positional=1, values="typed").check(mine, {"lr": 2}) == {"lr": 2}


def test_annotations_written_as_text_are_read():
    def mine(loss, *, lr: "StepSize" = 0.1):
        return lr

    assert Registry("method", positional=1).ranges(mine) == {"lr": (0.01, 3.0)}


def test_classes_and_partial_functions_are_factories_too():
    class Mine:
        def __init__(self, loss, *, lr: StepSize = 0.1):
            self.lr = lr

    registry = Registry("method", positional=1)
    assert registry.make(Mine, {"lr": 2}, "loss").lr == 2.0 and registry.name_of(Mine) == "Mine"
    hotter = functools.partial(bake, heat=2.0)
    assert BREADS.ranges(hotter)["heat"] == (0.01, 3.0) and BREADS.make(hotter, {}, "rye")[1] == 2.0


def test_an_annotation_of_ones_own_is_read():
    def mine(loss, *, share: Annotated[float, Number(above_zero=True, tuned=(0.1, 1.0))] = 0.5):
        return share

    assert read_options(mine, positional=1)["share"].rule == Number(above_zero=True, tuned=(0.1, 1.0))


# Plug-ins.


def install(folder, points, code="", name="stranger"):
    """A package with entry points, as pip would leave it in a folder of `sys.path`."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(textwrap.dedent(points))
    (folder / f"{name}.py").write_text(textwrap.dedent(code))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of `sys.path`; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_package_adds_by_an_entry_point(site):
    install(site, "[apiece.breads]\nflat = stranger:flat\n", "def flat(flour, *, heat=0.5): return flour, heat")
    breads = Registry("bread", group="apiece.breads", positional=1).add(bake=bake)
    assert "stranger" not in sys.modules, "a plug-in is loaded when it is needed"
    assert breads.own == ("bake",) and breads["bake"] is bake and "stranger" not in sys.modules
    assert list(breads) == ["bake", "flat"] and len(breads) == 2
    assert breads.make("flat", {"heat": 1}, "rye") == ("rye", 1.0)
    assert message_of(breads.find, "flatt").endswith("did you mean 'flat'?")
    assert message_of(breads.check, "flat", {"het": 1}).endswith("did you mean 'heat'?")
    assert breads.own == ("bake",)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("stranger:boom", "AttributeError: module 'stranger' has no attribute 'boom'"),
        ("no_stranger:flat", "ModuleNotFoundError: No module named 'no_stranger'"),
        ("broken:flat", "RuntimeError: not today"),
        ("stranger:number", "it is no function, but 3"),
    ],
)
def test_a_broken_plug_in_is_warned_of_and_left_out(site, target, words):
    points = f"[apiece.breads]\nbad = {target}\nflat = stranger:flat\n"
    install(site, points, "number = 3\ndef flat(flour): return flour")
    (site / "broken.py").write_text("raise RuntimeError('not today')")
    breads = Registry("bread", group="apiece.breads", positional=1).add(bake=bake)
    with pytest.warns(UserWarning) as told:
        assert list(breads) == ["bake", "flat"]
    assert [str(w.message) for w in told] == [f"the bread 'bad', which is {target}, is left out: {words}"]
    assert breads.make("flat", {}, "rye") == "rye", "it is told of once, and the others work"


def test_a_plug_in_never_takes_the_place_of_one_of_ours(site):
    install(site, "[apiece.breads]\nbake = stranger:flat\n", "def flat(flour): return flour")
    breads = Registry("bread", group="apiece.breads", positional=1).add(bake=bake)
    with pytest.warns(UserWarning, match="left out: there is another bread of that name"):
        assert list(breads) == ["bake"]
    assert breads["bake"] is bake


def test_every_kind_of_thing_can_be_plugged_in(tmp_path):
    """In a process of its own, with a plug-in that imports what it is plugged into."""
    kinds = ("methods", "models", "sources", "partitions", "rules", "attacks", "schedules")
    points = "".join(f"[apiece.{kind}]\nstrange = stranger:strange\n" for kind in kinds)
    install(tmp_path, points, "from apiece.methods import fed_avg\ndef strange(*args, **options): return args, options")
    program = """
        from apiece.aggregate import RULES
        from apiece.client.schedule import SCHEDULES
        from apiece.data import PARTITIONS, SOURCES
        from apiece.experiment import make_spec
        from apiece.methods import CATALOG
        from apiece.models import MODELS
        from apiece.wrap import ATTACKS
        for registry in (CATALOG, MODELS, SOURCES, PARTITIONS, RULES, ATTACKS, SCHEDULES):
            print(registry.group.removeprefix("apiece."), list(registry)[-1])
        spec = make_spec({"methods": {"strange": {}}, "model": {"name": "strange"}, "train": {"schedule": "strange"}})
        print(list(spec.methods)[-1], spec.model.name, spec.train.schedule)
    """
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", path + textwrap.dedent(program)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [f"{kind} strange" for kind in kinds] + ["strange strange strange"]
