"""The cases worked by hand, on the GPU."""

import pytest

from tests.test_search_cases import *  # noqa: F403

pytestmark = pytest.mark.gpu
