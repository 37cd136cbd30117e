"""Variants of the kernel that fit a block, and the memory of searches. No GPU is needed."""

from __future__ import annotations

import pytest
from benchmarks.kernels.variants import SANITIZED, VARIANTS

from flashtrie.formats.errors import ResourceError
from flashtrie.gpu import arguments, plan
from flashtrie.gpu.compile_check import ARCHITECTURES, compile_text, constant, variants
from flashtrie.gpu.compiler import source
from tests.gpu.conftest import FORCED

KIB = 1024
# What tests and measurements compile the kernel with.
CHANGES = [*FORCED.values(), *(v.changes for v in VARIANTS), *(case[0] for case in SANITIZED)]
CHANGES.append(plan.COUNTING)

_ONLY_A_BLOCK = """
extern "C" __constant__ u32 block_bytes = sizeof(Block);
extern "C" __global__ void keep(u32* size) { *size = block_bytes; }
"""


@pytest.mark.parametrize("width", plan.WIDTHS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_variant_fits_a_block(architecture, width):
    """Those that tests and measurements force, too."""
    for changes in ({}, *CHANGES):
        compiled = plan.defines(width, changes, ARCHITECTURES[architecture])
        assert plan.block_bytes(compiled) <= ARCHITECTURES[architecture]
        assert compiled.items() >= changes.items()
        assert compiled["SLOT_BITS"] == 0 or 1 << compiled["SLOT_BITS"] >= 2 * width


def test_the_size_of_a_block_is_that_of_the_struct():
    pytest.importorskip("cuda.core")
    sizes = variants("search.cu", "sm_80") + variants("search.cu", "sm_90")
    sizes += [plan.defines(1000, shared_bytes=99 * KIB)]
    sizes += [plan.defines(1000, changes) for changes in CHANGES]
    different = {plan.block_bytes(compiled): compiled for compiled in sizes}
    text = source("search.cuh") + _ONLY_A_BLOCK
    for planned, compiled in different.items():
        code, _ = compile_text(text, "block.cu", "sm_90", compiled)
        assert constant(code, "block_bytes") == planned, compiled


def test_a_gpu_with_less_shared_memory_takes_a_smaller_variant():
    room = [plan.block_bytes(plan.defines(1000, shared_bytes=k * KIB)) for k in (227, 163, 99)]
    assert room == sorted(room, reverse=True) and len(set(room)) == 3
    assert plan.defines(4096)["SLOT_BITS"] > 0
    assert plan.defines(4096, shared_bytes=163 * KIB)["SLOT_BITS"] == 0
    assert plan.defines(4096, shared_bytes=99 * KIB)["SLOT_BITS"] == 0


def test_a_gpu_that_is_too_small():
    with pytest.raises(ResourceError, match="bytes of shared memory, and can have 49,152"):
        plan.defines(1000, shared_bytes=48 * KIB)
    with pytest.raises(ResourceError, match="too small"):
        plan.defines(4000, {"GROUPS": 4096, "STAGE": 1 << 14})


@pytest.mark.parametrize("width", [1, 1024, 1025, 4096, 4097, 65_536])
def test_plans(width):
    compiled = plan.defines(width)
    for queries, beam_width in [(1, 1), (8, 1000), (500, 65_536)]:
        shape = plan.Shape(queries, 9, 8, width, beam_width)
        made = plan.plan_search(shape, compiled, 132, 1 << 40)
        assert made.teams == min(queries, 132)
        assert made.blocks <= 132
        places = [made.fields[name] for name in arguments.WORKSPACE_FIELDS]
        assert sorted(set(places)) == sorted(places) or width <= 4096  # then there is no table
        assert all(place % 256 == 0 for place in places)
        assert made.zero_bytes <= min(
            made.fields[n] for n in ("ranks_at", "history_at", "keys_at", "cursors_at")
        )


def test_a_plan_that_does_not_fit():
    shape = plan.Shape(4, 8, 8, 1000, 1000)
    whole = plan.plan_search(shape, plan.defines(1000), 132, 1 << 40)
    assert plan.plan_search(shape, plan.defines(1000), 132, whole.work_bytes * 2).teams == 2
    with pytest.raises(ResourceError, match="bytes"):
        plan.plan_search(shape, plan.defines(1000), 132, whole.work_bytes - 1)
