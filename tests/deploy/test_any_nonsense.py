"""A thousand bad configs, data files and messages: each a named error, nothing half written, nobody hangs.

With `test_bad_configs.py` (600 of them) and `test_networked.py` these are more than a thousand. No Flower is needed.
"""

import json
import time

import numpy as np
import pytest
from deployed_in_process import Deployed
from hypothesis import given, settings
from hypothesis import strategies as st

from apiece.deploy.config import SiteTable, read_site, read_sites
from apiece.deploy.roster import read_roster
from apiece.deploy.rows import read_rows
from apiece.deploy.server import read_run
from apiece.deploy.survey import add_measures, read_measure, read_survey
from apiece.engines.remote.codec import encode
from apiece.engines.remote.letter import read_letter, write_letter
from apiece.errors import UserError

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.sampled_from([10**30, -1, 2**31, 1e308])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["train", "test", "numbers", "words", "whole", "float32", "object"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def paths_of(value, at=()):
    """Every place in nested tables and lists."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from paths_of(one, (*at, key))


def with_change(value, at, new):
    """The same with something else at a place; `...` takes it away."""
    if not at:
        return new
    key, *rest = at
    copy = dict(value) if isinstance(value, dict) else list(value)
    if not rest and new is ...:
        del copy[key]
    else:
        copy[key] = with_change(copy[key], rest, new)
    return copy


@st.composite
def broken(draw, value, times=2):
    """A table in which something is another thing, or is missing."""
    for _ in range(draw(st.integers(1, times))):
        at = draw(st.sampled_from(list(paths_of(value))))
        value = with_change(value, at, draw(PLAIN | st.just(...)) if at else draw(PLAIN))
    return value


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """Two sites with a table each, whose run is over."""
    folder, rng, sites = tmp_path_factory.mktemp("nonsense"), np.random.default_rng(0), {}
    for name in ("north", "south"):
        rows = [
            "age,town,sick",
            *(f"{rng.integers(20, 90)},{'ab'[k % 2]},{'yes' if k % 3 else 'no'}" for k in range(30)),
        ]
        (folder / f"{name}.csv").write_text("\n".join(rows))
        sites[name] = {"data": str(folder / f"{name}.csv"), "label": "sick"}
    made = Deployed(folder, sites, {"methods": {"scaffold": {"steps": 1}}, "train": {"rounds": 2}})
    made.run()
    return made


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# Messages to a site.

HEADS = [
    {"task": "visit", "row": "scaffold~0", "round": 1},
    {"task": "visit", "row": "scaffold~0", "round": 2, "rounds": 2},
    {"task": "judge", "row": "scaffold~0", "round": 2, "visits": 1, "parts": ["test"]},
    {"task": "ask", "row": "scaffold~0", "question": "curvature", "message": [], "part": "train"},
    {"task": "measure", "question": "count_and_sum", "of": "age", "rules": None},
    {"task": "measure", "question": "count_at_most", "of": "age", "message": [40.0]},
    {"task": "propose"},
]


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_any_message_to_a_site_is_answered_or_refused_and_nothing_is_half_written(deployed, data):
    site = deployed.site(0)
    before, spec = files_of(deployed.folder / "north"), site.station.terms.spec
    head = {**site.station.terms._asdict(), "client": 0, **data.draw(st.sampled_from(HEADS))}
    agreed = json.loads((deployed.folder / "north" / "agreed.json").read_text())
    body = {
        "propose": lambda: json.dumps(data.draw(broken(agreed))).encode(),
        "visit": lambda: data.draw(st.binary(max_size=60)),
    }.get(head["task"], lambda: b"")()
    if head["task"] != "propose":
        head = data.draw(broken(head))
    began = time.monotonic()
    answer = read_letter(site.answer(write_letter(head if isinstance(head, dict) else {"head": head}, body)))
    assert time.monotonic() - began < 10
    if answer.head["task"] == "refusal":
        assert answer.head["why"] and "Traceback" not in answer.head["why"]
        assert files_of(deployed.folder / "north") == before and site.station.terms.spec == spec
    else:
        assert answer.head["task"] in ("measure", "ask", "judge", "propose")


# Messages to the server.


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_survey_is_taken_or_refused_with_the_name_of_its_site(deployed, data):
    told = json.loads(read_letter(_asked(deployed, "survey")).body)
    try:
        body = json.dumps(data.draw(broken(told))).encode()
        found = read_survey(data.draw(st.sampled_from([body, body[:-3], b"\xff\x00", b""])), "north")
    except UserError as error:
        assert "'north'" in str(error)
        return
    from apiece.deploy.agree import agree_on
    from apiece.deploy.place import stand_in_federation

    try:
        zeros = lambda question, of, message, rules: deployed_measure(deployed, question, of, message, rules)
        other = read_survey(read_letter(_asked(deployed, "survey", 1)).body, "south")
        agreed = agree_on({0: found, 1: other}, ["north", "south"], "sick", zeros, None)
        stand_in_federation("test", ["north", "south"], {0: found, 1: other}, agreed)
    except UserError as error:
        assert str(error)


def _asked(deployed, task, i=0, **about):
    site = deployed.site(i)
    return site.answer(write_letter({**site.station.terms._asdict(), "client": i, "task": task, **about}))


def deployed_measure(deployed, question, of, message, rules):
    """The sums of one site, or its refusal."""
    about = {"question": question, "of": of, "rules": rules}
    about |= {} if isinstance(message, tuple) and not message else {"message": np.asarray(message).tolist()}
    letter = read_letter(_asked(deployed, "measure", 1, **about))
    if letter.head["task"] == "refusal":
        raise UserError(letter.head["why"])
    total = add_measures({"south": read_measure(letter.body, "south")})
    return total if len(total) > 1 else total[0]


@settings(max_examples=100, deadline=None)
@given(
    answers=st.lists(st.binary(max_size=20) | PLAIN.map(lambda one: json.dumps(one).encode()), min_size=2, max_size=2)
)
def test_any_measure_is_added_or_refused_with_the_name_of_its_site(answers):
    try:
        add_measures({name: read_measure(body, name) for name, body in zip(("north", "south"), answers, strict=True)})
    except UserError as error:
        assert "north" in str(error) or "south" in str(error)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_reply_is_merged_or_refused(deployed, data):
    engine, state = deployed_engine(deployed)
    half = engine._server(state)
    like = half.terms.reply
    arrays = [np.full(shape, data.draw(st.floats(width=32)), dtype) for _, dtype, shape in like.leaves]
    import jax

    reply = jax.tree.unflatten(like.structure, arrays)
    header = data.draw(st.dictionaries(st.sampled_from(["round", "examples", "x"]), st.integers(-5, 2**40), max_size=3))
    wire = data.draw(
        st.sampled_from([encode(like, reply, header), encode(like, reply, header)[:-2], b"", b"\x00" * 64])
    )
    refusal = half.check(0, wire, 1)
    good = wire == encode(like, reply, header) and all(np.isfinite(leaf).all() for leaf in arrays)
    good = good and header.get("round") == 1 and 0 <= header.get("examples", -1) < 2**31
    assert (refusal is None) == good and (refusal is None or refusal.why)


ENGINES = {}


def deployed_engine(deployed):
    if "engine" not in ENGINES:
        server = deployed.server()
        surveys, agreed = server._agree()
        from apiece.deploy.server import stand_in_arena, stand_in_federation
        from apiece.experiment.bench import Bench

        place = stand_in_arena(stand_in_federation("test", deployed.names, surveys, agreed), server.spec)
        row = server.spec.rows["scaffold"]
        engine, hyper = server._engine("scaffold", Bench(place, row.method, row.options, server.spec.train), 0)
        ENGINES["engine"] = engine, engine.start(place.model.init, 0, hyper)
    return ENGINES["engine"]


# Files.

LINES = st.sampled_from([
    "[[site]]", "[site]", "[site.a]", "name = 'a'", "name = 3", "data = 'x.csv'", "data = ['x']", "label = ''",
    "seed = -1",
    "seed = 1e3", "population = 2", "number = 0", "keys = ['k']", "keys = [1]", "[train]", "rounds = 0", "rounds = 'x'",
    "[methods.ditto]", "[methods.nobody]", "lam = -1", "[train.defence]", "rule = 'median'", "most = 0", "engine = 'x'",
    "server = 'h:1'", "server = 7", "x = [", "\x00", "ä = 1", "seeds = []", "tune = 0", "rank = 'auc'", "[[methods]]",
])  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(lines=st.lists(LINES, max_size=8), garbage=st.binary(max_size=30))
def test_any_file_that_people_write_is_read_or_a_named_error(tmp_path_factory, lines, garbage):
    folder = tmp_path_factory.getbasetemp() / "written"
    folder.mkdir(exist_ok=True)
    file = folder / "site.toml"
    file.write_bytes("\n".join(lines).encode() + (b"" if lines else garbage))
    reads = (read_sites, read_roster, read_run, lambda path: read_site(path.parent))
    for read in reads:
        try:
            read(file)
        except UserError as error:
            assert str(error) and "Traceback" not in str(error)
    assert list(folder.iterdir()) == [file]


FORMATS = st.sampled_from(["north.csv", "north.parquet", "north.npz", "north.xlsx", "north.txt", "north"])


@settings(max_examples=200, deadline=None)
@given(name=FORMATS, content=st.binary(max_size=80), start=st.sampled_from([b"", b"PK\x03\x04", b"PAR1", b"sick\n1\n"]))
def test_any_bytes_for_data_are_read_or_a_named_error(tmp_path_factory, name, content, start):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / name).write_bytes(start + content)
    try:
        read_rows(SiteTable(name="north", data=name, label="sick"), folder).survey()
    except UserError as error:
        assert name.split(".")[0] in str(error)
    assert [path.name for path in folder.iterdir()] == [name]
