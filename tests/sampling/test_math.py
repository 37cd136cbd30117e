"""Our exp, log and noise: accuracy, known answers, and the same constants in Numba and CUDA."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from flashtrie.cpu import sampling_math
from flashtrie.formats.jit import jit

ROOT = Path(__file__).resolve().parents[2]


@jit
def _exp(x: float) -> float:
    return sampling_math.exp(x)


@jit
def _log(x: float) -> float:
    return sampling_math.log(x)


@jit
def _exponential(seed: int, position: int, token: int) -> float:
    return sampling_math.exponential(seed, position, token)


def test_exp() -> None:
    for x in [0.0, -1e-300, -0.3465, -0.3466, -1.0, -17.25, -700.0, -708.0]:
        assert _exp(x) == pytest.approx(math.exp(x), rel=3e-16)
    for x in np.random.default_rng(0).uniform(-708, 0, 2000):
        assert _exp(x) == pytest.approx(math.exp(x), rel=4e-16)
    assert _exp(-709.0) == 0.0 and _exp(-math.inf) == 0.0 and _exp(math.nan) == 0.0


def test_log() -> None:
    values = [1.0, 2.0**-53, 0.5, math.sqrt(0.5), 1 - 2.0**-53, 7.0, 1e300]
    for x in [*values, *np.random.default_rng(1).uniform(0, 1, 2000)]:
        assert _log(x) == pytest.approx(math.log(x), rel=4e-16)


def philox(key: int, counter: list[int]) -> list[int]:
    c = list(counter)
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ keys[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ keys[1], a & 0xFFFFFFFF]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


_SWEEP = """
extern "C" __global__ void sweep(u32 first, u64* most) {
    const float magnitude = __uint_as_float(first + blockIdx.x * blockDim.x + threadIdx.x);
    for (int sign = -1; sign <= 1; sign += 2) {
        const double x = sign * (double)magnitude, exact = exp2(x);
        const double error = ((double)power_of_two((float)x) - exact) / exact;
        atomicMax(most + (error > 0), (u64)__double_as_longlong(fabs(error)));
    }
}
"""


@pytest.mark.gpu
@pytest.mark.hardware
def test_power_of_two_on_every_number() -> None:
    """What p can be off by, where the kept are all too heavy, the others too light, and p is 1/2.

    A quarter of the margin is left for sums of neighbours. Each of their roundings is up to 2^-24
    of a sum either way, which all packs of a row would have to have in common.
    """
    import cupy

    from flashtrie.gpu.compiler import OPTIONS, source

    text = "#define ELEMENT 0\n" + source("sampling.cuh") + _SWEEP
    sweep = cupy.RawModule(code=text, options=OPTIONS).get_function("sweep")
    first, stop = (int(np.float32(x).view(np.uint32)) for x in (2.0**-30, 1.0))
    most = cupy.zeros(2, np.float64)
    for start in range(first, stop, 1 << 24):
        sweep(((1 << 24) // 256,), (256,), (np.uint32(start), most))
    light, heavy = map(float, most)
    print(f"2^x is within -{light:.3g} and +{heavy:.3g}")
    assert 0 < (light + heavy) / 4 < 7.5e-8


def test_noise_is_philox() -> None:
    # The known answer of Random123 for zeros.
    assert philox(0, [0, 0, 0, 0]) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    for seed, position in ((0, 0), (7, 3), (2**62 + 5, 2**40 + 1)):
        for token in (0, 1, 2, 3, 4, 777, 2**31 + 2):
            counter = [token >> 2, 0, position & 0xFFFFFFFF, position >> 32]
            high = philox(seed, counter)[token & 3]
            counter[1] = 1
            word = high << 32 | philox(seed, counter)[token & 3]
            u = ((word >> 11) + 0.5) * 2.0**-53
            assert _exponential(seed, position, token) == pytest.approx(-math.log(u), rel=1e-15)


def test_constants_are_the_kernels() -> None:
    text = (ROOT / "gpu" / "kernels" / "sampling_math.cuh").read_text()
    found = dict(re.findall(r"^#define (\w+) (-?[\w.+-]+)$", text, re.MULTILINE))
    assert len(found) == 23
    for name, literal in found.items():
        value = float.fromhex(literal) if "x" in literal else float(literal)
        assert getattr(sampling_math, name) == value
