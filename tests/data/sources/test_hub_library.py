"""The hub through its own library, offline: a copy of the same layout, the cache, and what is told in words."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

pytest.importorskip("datasets")

FEATURES = {
    "image": {"_type": "Image"},
    "writer_id": {"dtype": "string", "_type": "Value"},
    "hsf_id": {"dtype": "int64", "_type": "Value"},
    "character": {"names": ["A", "B", "C"], "_type": "ClassLabel"},
}


def femnist_at(folder):
    """A few letters of three writers, as flwrlabs/femnist lies on the hub."""
    folder.mkdir(parents=True)
    pictures = np.random.default_rng(0).integers(0, 256, (36, 28, 28)).astype(np.uint8)

    def png(picture):
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "PNG")
        return {"bytes": file.getvalue(), "path": None}

    columns = {"image": [png(p) for p in pictures], "writer_id": np.repeat(["f0", "f1", "f2"], 12).tolist()}
    columns |= {"hsf_id": [0] * 36, "character": [k % 3 for k in range(36)]}
    told = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    parquet.write_table(pa.table(columns).replace_schema_metadata(told), folder / "train-00000-of-00001.parquet")


def offline(folder, program):
    """Run in a process of its own: the library reads its settings when it is imported."""
    places = {"HF_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, env={**os.environ, **places},
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_library_gives_what_a_local_copy_gives_and_keeps_it(tmp_path):
    # The library takes a folder of that name where there is one: the same code reads it, and fills the same cache.
    femnist_at(tmp_path / "flwrlabs" / "femnist" / "data")
    program = """
import numpy as np
from apiece.data import source

by_library, by_hand, again = source("femnist"), source("femnist", folder="flwrlabs/femnist"), source("femnist")
for other in (by_hand, again):
    assert by_library.ids.tolist() == other.ids.tolist() == ["f0", "f1", "f2"]
    assert by_library.classes == other.classes == ("A", "B", "C")
    for part in ("train", "validation", "test"):
        a, b = getattr(by_library, part), getattr(other, part)
        assert np.array_equal(a.x, b.x) and np.array_equal(a.y, b.y) and a.x.shape[1:] == (28, 28), part
"""
    offline(tmp_path, program)
    assert list((tmp_path / "home" / "datasets").rglob("*.arrow"))


def test_offline_it_is_told_in_words(tmp_path):
    program = """
from apiece.data import source
from apiece.errors import UserError

try:
    source("mnist")
except UserError as error:
    print(error)
"""
    told = offline(tmp_path, program)
    assert "ylecun/mnist could not be fetched from the Hugging Face hub and is not in its cache" in told
    assert "go online once" in told and "folder=" in told
