"""The properties of searches against the oracle, on the GPU."""

import pytest

from tests.test_search_properties import *  # noqa: F403

pytestmark = pytest.mark.gpu

# Thousands of steps; and 64 queries for each of many examples.
pytest.mark.hardware(test_a_search_down_a_long_chain)  # noqa: F405
pytest.mark.hardware(test_large_searches)  # noqa: F405
pytest.mark.hardware(test_every_layout_and_batches_of_64)  # noqa: F405
