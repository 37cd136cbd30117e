"""The properties of searches against the oracle, on the GPU."""

import pytest

from tests.test_search_properties import *  # noqa: F403

pytestmark = pytest.mark.gpu
