"""Machine instructions that Numba has no name for, each an intrinsic.

Kernels take memory that they only read as addresses, not as arrays: for every array that a
function is given, Numba counts references with atomic instructions, which took most of the time
of a lookup, and which threads would wait for. Whoever calls a kernel holds the arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

_Lowering = tuple[Any, Callable[..., Any]]
# Callers see a function of the operands, not of the typing context and all.
_intrinsic: Callable[[Callable[..., _Lowering]], Any] = intrinsic
_config: Any = numba.config  # has no types

# x86-64 with BMI2, unless Numba is told to compile for another processor. AMD's before Zen 3 have
# the instruction, but take tens of cycles for it.
HAS_DEPOSIT = (
    binding.get_host_cpu_features().get("bmi2", False)
    and binding.get_host_cpu_name() not in ("znver1", "znver2")
    and not (_config.CPU_NAME or _config.CPU_FEATURES)
)


@_intrinsic
def popcount(typing_context: Any, word: Any) -> _Lowering:
    """Ones of a uint64, as int64."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), lower


@_intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> _Lowering:
    """Position of the lowest one of a uint64, as int64; 64 where there is none."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), lower


@_intrinsic
def leading_zeros(typing_context: Any, word: Any) -> _Lowering:
    """Zeros above the highest one of a uint64, as int64; 64 where there is none."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), lower


@_intrinsic
def deposit(typing_context: Any, bits: Any, mask: Any) -> _Lowering:
    """The low bits of `bits` where `mask` has ones, lowest first. Only where HAS_DEPOSIT."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        name = "llvm.x86.bmi.pdep.64"
        function = builder.module.globals.get(name)
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(word, [word, word]), name)
        return builder.call(function, arguments)

    return types.uint64(types.uint64, types.uint64), lower


@_intrinsic
def float_bits(typing_context: Any, value: Any) -> _Lowering:
    """The bits of a float32, as int64 from 0 to 2^32 - 1."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.bitcast(arguments[0], ir.IntType(32)), ir.IntType(64))

    return types.int64(types.float32), lower


@_intrinsic
def float_of_bits(typing_context: Any, bits: Any) -> _Lowering:
    """The float32 of the low 32 bits of an int64."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.trunc(arguments[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.int64), lower


def _load(bits: int, signed: bool, step: int) -> Any:
    """An intrinsic that loads `bits` bits at `address + index * step`, on any byte.

    The loads are marked invariant: what they read is mapped read-only or built once, so that a
    loop's stores need not be thought to change it.
    """
    result = types.int64 if signed else types.uint64

    def load(typing_context: Any, address: Any, index: Any) -> _Lowering:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            offset = builder.mul(arguments[1], ir.Constant(ir.IntType(64), step))
            place = builder.add(arguments[0], offset)
            pointer = builder.inttoptr(place, ir.IntType(bits).as_pointer())
            loaded = builder.load(pointer, align=step)
            loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
            return builder.zext(loaded, ir.IntType(64)) if bits < 64 else loaded

        return result(types.int64, types.int64), lower

    return load


# Of an address and an index: u64 and u64_at_byte give uint64, u32 and i64 give int64.
u64 = intrinsic(_load(64, False, 8))
u32 = intrinsic(_load(32, True, 4))
i64 = intrinsic(_load(64, True, 8))
u64_at_byte = intrinsic(_load(64, False, 1))


def _pointer(kind: Any) -> Any:
    """An intrinsic that makes an address a pointer, which is indexed as an array is."""

    pointer: Any = types.CPointer
    pointer = pointer(kind)

    def make(typing_context: Any, address: Any) -> _Lowering:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(types.int64), lower

    return make


# What kernels write to comes as addresses too, for the same reason.
pointer_u16 = intrinsic(_pointer(types.uint16))
pointer_u32 = intrinsic(_pointer(types.uint32))
pointer_u64 = intrinsic(_pointer(types.uint64))
pointer_i32 = intrinsic(_pointer(types.int32))
pointer_i64 = intrinsic(_pointer(types.int64))
pointer_f32 = intrinsic(_pointer(types.float32))


@_intrinsic
def prefetch(typing_context: Any, address: Any, index: Any, size: Any) -> _Lowering:
    """Ask for the cache line of element `index` of `size` bytes, without waiting or faulting."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = builder.add(arguments[0], builder.mul(arguments[1], arguments[2]))
        pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
        word32 = ir.IntType(32)
        name = "llvm.prefetch.p0i8"  # renamed by LLVM where pointers have no types
        function = builder.module.globals.get(name)
        if function is None:
            parameters = [ir.IntType(8).as_pointer(), word32, word32, word32]
            kind = ir.FunctionType(ir.VoidType(), parameters)
            function = ir.Function(builder.module, kind, name)
        builder.call(function, [pointer, word32(0), word32(3), word32(1)])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), lower
