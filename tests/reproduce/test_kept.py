"""Pieces of a long reproduction: made once, read again, and made anew where a setting changed."""

import numpy as np

from apiece.reproduce.kept import keeping, kept


def test_a_piece_is_made_once_and_a_changed_setting_makes_another(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return {"a": np.arange(3.0)}, {"chosen": [1.0, None]}

    for settings in ({"seed": 0}, {"seed": 0}, {"seed": 1}):
        with keeping(tmp_path):
            arrays, about = kept("first stage, images", settings, make)
        np.testing.assert_array_equal(arrays["a"], [0.0, 1.0, 2.0])
        assert about == {"chosen": [1.0, None]}
    assert len(calls) == 2 and len(list(tmp_path.iterdir())) == 2


def test_nothing_is_kept_unless_asked_for(tmp_path):
    with keeping(None):
        kept("x", 0, lambda: ({}, {}))
    assert not list(tmp_path.iterdir())
