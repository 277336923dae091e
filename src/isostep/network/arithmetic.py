"""2^x for float32 in plain arithmetic, which the compiler turns into vector instructions:

2^x = 2^r p(x - r),   r = x rounded,   p a polynomial of degree 6 on [-1/2, 1/2]   (relative error below 2e-7)

And bfloat16, the upper half of a float32, which kernels know as uint16: `wide` reads an element of either kind,
`narrow` makes one.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.compiler import Compiler
from numba.extending import intrinsic

# No assumption that values are finite: a graph that diverged must stay visible.
FAST: Any = {"reassoc", "contract", "arcp", "nsz"}
OPTIONS: Any = {"nopython": True, "nogil": True, "cache": True, "fastmath": FAST, "error_model": "numpy"}


class _Apart(Compiler):
    """Tells LLVM that no array is written through one argument and read through another, as `restrict` in C does."""

    def define_pipelines(self) -> Any:
        self.state.flags.noalias = True
        return super().define_pipelines()


APART: Any = {**OPTIONS, "pipeline_class": _Apart}  # without it, a short loop takes as long to rule that out as to run

_nodes = np.cos((np.arange(7) + 0.5) * math.pi / 7) / 2  # Chebyshev nodes: near the best polynomial
P0, P1, P2, P3, P4, P5, P6 = (np.float32(c) for c in np.polynomial.polynomial.polyfit(_nodes, 2.0**_nodes, 6))
LOW, HIGH, HALF, ONE = np.float32(-126), np.float32(126), np.float32(0.5), np.float32(1)
LOG2_E = np.float32(math.log2(math.e))


def _typed_bits(typing_context, value):
    """The float32 with the bits of an int32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


_bits: Any = intrinsic(_typed_bits)


def _typed_wide(typing_context, value):
    """The float32 of a float32 or a bfloat16."""

    def generate(context, builder, signature, arguments):
        (value,) = arguments
        if signature.args[0] == types.float32:
            return value
        word = ir.IntType(32)
        return builder.bitcast(builder.shl(builder.zext(value, word), word(16)), ir.FloatType())

    return types.float32(value), generate


def _typed_narrow(typing_context, value, array):
    """The float32 as the array's elements are: itself, or rounded to the nearest bfloat16, ties to even."""

    def generate(context, builder, signature, arguments):
        value = arguments[0]
        if signature.return_type == types.float32:
            return value
        word, short = ir.IntType(32), ir.IntType(16)
        bits = builder.bitcast(value, word)
        odd = builder.and_(builder.lshr(bits, word(16)), word(1))
        near = builder.lshr(builder.add(builder.add(bits, word(0x7FFF)), odd), word(16))
        undefined = builder.fcmp_unordered("uno", value, value)  # adding to its bits could make NaN a number
        return builder.trunc(builder.select(undefined, word(0x7FC0), near), short)

    return array.dtype(types.float32, array), generate


wide: Any = intrinsic(_typed_wide)
narrow: Any = intrinsic(_typed_narrow)


@numba.jit(**OPTIONS, inline="always")
def exp2(x):
    # Written so that NaN passes both comparisons.
    return exp2_low(HIGH if x > HIGH else x)


@numba.jit(**OPTIONS, inline="always")
def exp2_low(x):
    """For x up to 126."""
    x = LOW if x < LOW else x
    r = np.floor(x + HALF)
    f = x - r
    p = P0 + f * (P1 + f * (P2 + f * (P3 + f * (P4 + f * (P5 + f * P6)))))
    return p * _bits((np.int32(r) + np.int32(127)) << np.int32(23))
