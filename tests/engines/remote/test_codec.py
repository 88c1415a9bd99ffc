"""Trees over the wire: what comes back, and everything that must be refused. No code ever travels."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from apiece.engines.remote import codec
from apiece.engines.remote.codec import Schema, decode, encode, schema_of
from apiece.errors import UserError

TREE = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": (np.int32(7), np.zeros((0, 2), np.uint8))}
SCHEMA = schema_of("reply", TREE)
WIRE = encode(SCHEMA, TREE, {"round": 3, "examples": 12})

DTYPES = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint32", "bool", "complex64"]
ARRAYS = st.builds(
    lambda dtype, shape, seed: (np.random.default_rng(seed).normal(size=shape) * 9).astype(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 99),
)
TREES = st.recursive(
    ARRAYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(TREES, st.dictionaries(st.text(max_size=5), st.integers(-(2**40), 2**40), max_size=3))
def test_a_tree_comes_back_bit_for_bit(tree, header):
    schema = schema_of("message", tree)
    back, about = decode(schema, encode(schema, tree, header))
    assert about == header
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def test_numbers_alone_and_other_memory_orders_travel_too():
    tree = {
        "one": jnp.float32(3),
        "turned": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "slice": np.arange(9)[::2],
    }
    schema = schema_of("message", tree)
    back, _ = decode(schema, encode(schema, tree, {}))
    assert back["one"].shape == () and back["one"] == 3
    np.testing.assert_array_equal(back["turned"], tree["turned"])
    np.testing.assert_array_equal(back["slice"], tree["slice"])


@given(st.binary(max_size=200))
def test_garbage_is_refused(wire):
    with pytest.raises(UserError, match="reply"):
        decode(SCHEMA, wire)


@given(st.integers(0, len(WIRE) - 1))
def test_truncated_bytes_are_refused(length):
    with pytest.raises(UserError, match="reply"):
        decode(SCHEMA, WIRE[:length])


@given(st.lists(st.tuples(st.integers(0, len(WIRE) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_damaged_bytes_are_refused_or_only_change_numbers(damage):
    wire = bytearray(WIRE)
    for place, flip in damage:
        wire[place] ^= flip
    try:
        tree, header = decode(SCHEMA, bytes(wire))
    except UserError:
        return
    assert schema_of("reply", tree).leaves == SCHEMA.leaves
    assert all(isinstance(value, int) for value in header.values())


@pytest.mark.parametrize(
    "other",
    [
        {**TREE, "w": TREE["w"].astype(np.float64)},
        {**TREE, "w": TREE["w"].T},
        {**TREE, "v": TREE["w"]},
        {"w": TREE["w"]},
        {"u": TREE["w"], "n": TREE["n"]},
    ],
    ids=["dtype", "shape", "one-more", "one-less", "another-name"],
)
def test_another_tree_is_refused_on_both_sides(other):
    with pytest.raises(UserError, match="does not fit its schema"):
        encode(SCHEMA, other, {})
    foreign = schema_of("reply", other)
    with pytest.raises(UserError, match="another schema"):
        decode(SCHEMA, encode(foreign, other, {}))


def test_a_message_is_not_a_reply():
    with pytest.raises(UserError, match="another schema"):
        decode(SCHEMA, encode(schema_of("message", TREE), TREE, {}))


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(codec, "VERSION", "2")
    with pytest.raises(UserError, match="different versions"):
        decode(SCHEMA, WIRE)


def forged(leaves, schema=SCHEMA, header='{"round": 1}'):
    return safetensors.numpy.save(leaves, {"apiece": f'{{"schema": "{schema.hash}", "header": {header}}}'})


def honest():
    return {str(k): np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(TREE))}


@pytest.mark.parametrize(
    ("leaf", "complaint"),
    [(np.zeros((3, 2), np.float32), r"expected float32\(2, 3\)"), (np.zeros((2, 3), np.float64), r"float64\(2, 3\)")],
)
def test_the_right_hash_does_not_save_wrong_leaves(leaf, complaint):
    with pytest.raises(UserError, match=complaint):
        decode(SCHEMA, forged({**honest(), "2": leaf}))


@pytest.mark.parametrize("names", [("0", "1"), ("0", "1", "x"), ("0", "1", "2", "3")])
def test_the_right_hash_does_not_save_wrong_names(names):
    with pytest.raises(UserError, match="another schema"):
        decode(SCHEMA, forged({name: np.zeros(1, np.float32) for name in names}))


NUMBERS = ["[]", "9" * 5000]
HEADERS = [
    *(f'{{"round": {number}}}' for number in NUMBERS),
    "[1]",
    "7",
    "null",
    "{",
    '{"round": 1e999}',
    '{"round": NaN}',
    '{"round": null}',
    '{"round": "x"}',
    "[" * 10**5,
]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header[:20])
def test_a_header_that_is_not_numbers_is_refused(header):
    assert decode(SCHEMA, forged(honest()))[1] == {"round": 1}
    with pytest.raises(UserError, match="could not be read"):
        decode(SCHEMA, forged(honest(), header=header))


def test_bytes_without_a_header_are_refused():
    with pytest.raises(UserError, match="could not be read"):
        decode(SCHEMA, safetensors.numpy.save(honest()))


def test_too_many_bytes_are_refused_unread(monkeypatch):
    monkeypatch.setattr(codec, "LIMIT", len(WIRE) - 1)
    with pytest.raises(UserError, match="the limit is"):
        decode(SCHEMA, WIRE)


def test_no_pickle_is_read_or_written():
    import pickle

    with pytest.raises(UserError):
        decode(SCHEMA, pickle.dumps(TREE))
    length = int.from_bytes(WIRE[:8], "little")
    assert set(json.loads(WIRE[8 : 8 + length])) == {"__metadata__", "0", "1", "2"}
    objects = {"w": np.array([print], dtype=object)}
    with pytest.raises(Exception, match="object"):
        encode(Schema("reply", None, (("['w']", "object", (1,)),)), objects, {})


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "bool", "int8", "uint32"])
def test_every_dtype_of_a_model_survives_the_wire(dtype):
    value = {"w": jnp.asarray([[0, 1], [1, 0]], dtype), "scalar": jnp.asarray(1, dtype)}
    schema = schema_of("reply", value)
    back, _ = decode(schema, encode(schema, value, {"round": 0}))
    for sent, got in zip(jax.tree.leaves(value), jax.tree.leaves(back), strict=True):
        assert got.dtype == sent.dtype
        assert got.shape == sent.shape
        np.testing.assert_array_equal(np.asarray(sent, np.float32), np.asarray(got, np.float32))
