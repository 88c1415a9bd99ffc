"""What tests of many methods share."""

import jax
import pytest


@pytest.fixture(scope="module")
def compiled_in_haste():
    """Thousands of tiny programs run once each: most of their time is that of the compiler."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
