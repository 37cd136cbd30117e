"""exp, log and Philox noise, bit for bit as gpu/kernels/sampling_math.cuh has them.

Library functions differ between a CPU and a GPU. These are fixed sequences of float64 add,
multiply and fma with the same constants, so that both draw the same token. Some 20
instructions each; errors below 1 ulp for exp of [-708, 0] and for log of normal numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from flashtrie.cpu.compiled import inner
from flashtrie.formats.jit import Int

_Lowering = tuple[Any, Callable[..., Any]]
# Numba types it as what the compiler calls, not as what compiled code does.
_intrinsic: Callable[[Callable[..., _Lowering]], Any] = intrinsic

LOG2_E = float.fromhex("0x1.71547652b82fep+0")
LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
# 1.5 x 2^52: added and taken away again it rounds to an integer, which stands in the low bits.
ROUNDER = float.fromhex("0x1.8p+52")
EXP_LOWEST = -708.0  # exp of less is taken as 0: below 1e-307

# 1 / n! for n = 13 down to 2: |r| <= ln 2 / 2 leaves 4e-18 out.
E13 = float.fromhex("0x1.6124613a86d09p-33")
E12 = float.fromhex("0x1.1eed8eff8d898p-29")
E11 = float.fromhex("0x1.ae64567f544e4p-26")
E10 = float.fromhex("0x1.27e4fb7789f5cp-22")
E9 = float.fromhex("0x1.71de3a556c734p-19")
E8 = float.fromhex("0x1.a01a01a01a01ap-16")
E7 = float.fromhex("0x1.a01a01a01a01ap-13")
E6 = float.fromhex("0x1.6c16c16c16c17p-10")
E5 = float.fromhex("0x1.1111111111111p-7")
E4 = float.fromhex("0x1.5555555555555p-5")
E3 = float.fromhex("0x1.5555555555555p-3")

# fdlibm's log: of (1 + s) / (1 - s) over s, less 2, in powers of s^2.
L1 = float.fromhex("0x1.5555555555593p-1")
L2 = float.fromhex("0x1.999999997fa04p-2")
L3 = float.fromhex("0x1.2492494229359p-2")
L4 = float.fromhex("0x1.c71c51d8e78afp-3")
L5 = float.fromhex("0x1.7466496cb03dep-3")
L6 = float.fromhex("0x1.39a09d078c69fp-3")
L7 = float.fromhex("0x1.2f112df3e5244p-3")


@_intrinsic
def _fma(typing_context: Any, a: Any, b: Any, c: Any) -> _Lowering:
    """a b + c, rounded once."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), lower


@_intrinsic
def _double_bits(typing_context: Any, value: Any) -> _Lowering:
    """The bits of a float64, as int64."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), lower


@_intrinsic
def _double_of(typing_context: Any, value: Any) -> _Lowering:
    """The float64 of these bits, an int64."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), lower


@inner
def exp(x: float) -> float:
    """e^x for x <= 0; 0 below -708."""
    if not x >= EXP_LOWEST:
        return 0.0
    shifted = _fma(x, LOG2_E, ROUNDER)
    n = shifted - ROUNDER
    r = _fma(n, -LN2_HIGH, x)
    r = _fma(n, -LN2_LOW, r)
    y = _fma(E13, r, E12)
    y = _fma(y, r, E11)
    y = _fma(y, r, E10)
    y = _fma(y, r, E9)
    y = _fma(y, r, E8)
    y = _fma(y, r, E7)
    y = _fma(y, r, E6)
    y = _fma(y, r, E5)
    y = _fma(y, r, E4)
    y = _fma(y, r, E3)
    y = _fma(y, r, 0.5)
    y = _fma(y, r, 1.0)
    y = _fma(y, r, 1.0)
    power: float = _double_of(_double_bits(y) + (_double_bits(shifted) << 52))
    return power


@inner
def log(x: float) -> float:
    """ln x for a normal x > 0."""
    bits = _double_bits(x)
    # The mantissa goes to [sqrt(1/2), sqrt(2)).
    exponent = (bits - np.int64(0x3FE6A09E667F3BCD)) >> 52
    f = _double_of(bits - (exponent << 52)) - 1.0
    n = np.float64(exponent)
    s = f / (2.0 + f)
    z = s * s
    r = _fma(L7, z, L6)
    r = _fma(r, z, L5)
    r = _fma(r, z, L4)
    r = _fma(r, z, L3)
    r = _fma(r, z, L2)
    r = _fma(r, z, L1)
    r = r * z
    half = 0.5 * f * f
    low = _fma(s, half + r, n * LN2_LOW)
    logarithm: float = _fma(n, LN2_HIGH, f - (half - low))
    return logarithm


@inner
def _noise(seed: Int, position: Int, quad: Int, part: Int, lane: Int) -> Any:
    """Word `lane` of Philox4x32-10 (Salmon et al., 2011), a uint64 below 2^32."""
    mask = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    c0 = np.uint64(quad)
    c1 = np.uint64(part)
    c2 = np.uint64(position) & mask
    c3 = np.uint64(position) >> half
    k0 = np.uint64(seed) & mask
    k1 = np.uint64(seed) >> half
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c0
        b = np.uint64(0xCD9E8D57) * c2
        c0 = (b >> half) ^ c1 ^ k0
        c2 = (a >> half) ^ c3 ^ k1
        c1 = b & mask
        c3 = a & mask
        k0 = (k0 + np.uint64(0x9E3779B9)) & mask
        k1 = (k1 + np.uint64(0xBB67AE85)) & mask
    low = c1 if lane & 1 else c0
    high = c3 if lane & 1 else c2
    return high if lane & 2 else low


@inner
def exponential(seed: Int, position: Int, token: Int) -> float:
    """-ln u of the token's noise, u uniform in (0, 1) with 53 bits; all three int64.

    Philox with key = seed and counter = (token // 4, half, position); word token % 4 of half 0 is
    the high half of the token's word, of half 1 the low one.
    """
    high = _noise(seed, position, token >> 2, 0, token & 3)
    word = (high << np.uint64(32)) | _noise(seed, position, token >> 2, 1, token & 3)
    return -log((np.float64(word >> np.uint64(11)) + 0.5) * 2.0**-53)
