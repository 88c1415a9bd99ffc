"""A Flax, an Equinox and a PyTorch module of a user's own under every method, and the same on both engines."""

import pytest
from model_runs import FOREIGN, fits, rotation
from product import keeps_its_shapes, trains_and_agrees

from apiece.methods import CATALOG, USUAL


@pytest.mark.parametrize("module", FOREIGN)
def test_a_module_of_ones_own_keeps_its_shapes_under_every_method_it_fits(module):
    keeps_its_shapes(module)


# The usual methods, with whole models alone; and one each with parts, norms, second derivatives and inner solves.
@pytest.mark.parametrize(("module", "method"), rotation(FOREIGN, (*USUAL, "fed_per", "fed_bn", "maml_fl", "ffgg")))
def test_a_module_of_ones_own_trains_alike_on_both_engines(module, method):
    trains_and_agrees(module, method)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("module", "method"), [(m, n) for m in FOREIGN for n in CATALOG if fits(m, n)])
def test_a_module_of_ones_own_trains_under_every_method_it_fits(module, method):
    trains_and_agrees(module, method)
