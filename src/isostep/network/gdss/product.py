"""Products of small weights with thousands of columns, where a library has half the rate of a large product: sums stay
in registers, and a few columns at a time, in the first cache, pass a whole MLP.

LLVM does not find this by itself, so the innermost loop is written in its language. Numba's cache does not see a change
of this file in `kernels.py`, which has it inlined: delete the cache (`__pycache__/*.nb*`) after one.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils, types
from numba.extending import intrinsic

from isostep.network.arithmetic import LOG2_E, ONE, OPTIONS, exp2_low

ZERO = np.float32(0)

ROWS, VECTORS = 4, 2  # eight sums: enough to hide a multiply-add's latency, few enough for sixteen registers
LANES = 16 if get_host_cpu_features().get("avx512f") else 8
COLUMNS = LANES * VECTORS
CONTRACT = ("contract",)


def _typed_multiply(typing_context, weight, first, source, begin, step, target, place, stride):
    """Rows `first` to `first + ROWS` of weight @ source, COLUMNS columns.

    `source` and `target` are flat: row k of the one is at `begin + k step`, row r of the other at `place + r stride`.
    Rows behind the weight's last one repeat that.
    """

    def generate(context, builder, signature, arguments):
        array = [
            context.make_array(kind)(context, builder, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        weight, first, source, begin, step, target, place, stride = array
        vector, index = ir.VectorType(ir.FloatType(), LANES), first.type
        zero, lanes = ir.Constant(vector, None), ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        height, depth = cgutils.unpack_tuple(builder, weight.shape, 2)
        last = builder.sub(height, ir.Constant(index, 1))
        rows = []
        for r in range(ROWS):
            row = builder.add(first, ir.Constant(index, r))
            rows.append(builder.select(builder.icmp_signed("<", row, last), row, last))

        def vectors(flat, start):
            """Pointers to the vectors of a row."""
            places = (builder.add(start, ir.Constant(index, LANES * v)) for v in range(VECTORS))
            return [builder.bitcast(builder.gep(flat.data, [at]), vector.as_pointer()) for at in places]

        sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(VECTORS)] for _ in range(ROWS)]
        with cgutils.for_range(builder, depth) as loop:
            there = vectors(source, builder.add(begin, builder.mul(loop.index, step)))
            x = [builder.load(pointer, align=4) for pointer in there]
            for r in range(ROWS):
                at = builder.gep(weight.data, [builder.add(builder.mul(rows[r], depth), loop.index)])
                one = builder.insert_element(zero, builder.load(at), ir.Constant(ir.IntType(32), 0))
                w = builder.shuffle_vector(one, zero, lanes)
                for v in range(VECTORS):
                    product = builder.fmul(w, x[v], flags=CONTRACT)
                    builder.store(builder.fadd(builder.load(sums[r][v]), product, flags=CONTRACT), sums[r][v])
        for r in range(ROWS):
            row = builder.mul(builder.sub(rows[r], first), stride)
            for pointer, total in zip(vectors(target, builder.add(place, row)), sums[r], strict=True):
                builder.store(builder.load(total), pointer, align=4)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(weight, whole, source, whole, whole, target, whole, whole), generate


_multiply: Any = intrinsic(_typed_multiply)


def _typed_dots(typing_context, source, a, b, c, d, step, depth, target, place, stride, vectors):
    """Two sums of `depth` products of rows of `source`, on `vectors` LANES columns: a b to `target` at `place`, c d
    `stride` behind. All arrays are flat, row k of a begins at a + k step."""

    def generate(context, builder, signature, arguments):
        source, target = (context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 7))
        *begins, step, depth = arguments[1:7]
        place, stride, count = arguments[8:]
        vector, index = ir.VectorType(ir.FloatType(), LANES), place.type
        zero, lanes = ir.Constant(vector, None), ir.Constant(index, LANES)

        def pointer(flat, at):
            return builder.bitcast(builder.gep(flat.data, [at]), vector.as_pointer())

        sums = [cgutils.alloca_once(builder, vector) for _ in range(2)]
        with cgutils.for_range(builder, count) as columns:
            column = builder.mul(columns.index, lanes)
            starts = [builder.add(begin, column) for begin in begins]
            for total in sums:
                builder.store(zero, total)
            with cgutils.for_range(builder, depth) as loop:
                row = builder.mul(loop.index, step)
                a, b, c, d = (builder.load(pointer(source, builder.add(at, row)), align=4) for at in starts)
                for total, x, y in ((sums[0], a, b), (sums[1], c, d)):
                    product = builder.fmul(x, y, flags=CONTRACT)
                    builder.store(builder.fadd(builder.load(total), product, flags=CONTRACT), total)
            at = builder.add(place, column)
            for k, total in enumerate(sums):
                there = builder.add(at, builder.mul(stride, ir.Constant(index, k)))
                builder.store(builder.load(total), pointer(target, there), align=4)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(source, whole, whole, whole, whole, whole, whole, target, whole, whole, whole), generate


dots: Any = intrinsic(_typed_dots)


@numba.jit(**OPTIONS)
def _product(weight, source, begin, step, target, place, stride):
    """The whole product on COLUMNS columns."""
    for row in range(0, weight.shape[0], ROWS):
        _multiply(weight, row, source, begin, step, target, place + row * stride, stride)


@numba.jit(**OPTIONS)
def product(weight, h, out):
    """out = weight @ h, at least COLUMNS columns; rows of `out` may be longer."""
    columns, source, target = h.shape[1], h.reshape(h.size), out.reshape(out.size)
    for begin in range(0, columns, COLUMNS):
        at = min(begin, columns - COLUMNS)  # the last columns of an uneven number are done twice
        _product(weight, source, at, columns, target, at, out.shape[1])


@numba.jit(**OPTIONS)
def mlp(weights, h, out):
    """Linear maps with ELU between them, COLUMNS columns at a time; a row of ones below h and all that is hidden."""
    columns, layers, widest = h.shape[1], len(weights), 0
    for weight in weights:
        widest = max(widest, weight.shape[1])
    given, result = h.reshape(h.size), out.reshape(out.size)
    hidden = np.empty(2 * widest * COLUMNS, np.float32)
    for begin in range(0, columns, COLUMNS):
        at = min(begin, columns - COLUMNS)
        source, place, step = given, at, columns
        for i in range(layers - 1):
            rows, new = weights[i].shape[0], i % 2 * widest * COLUMNS
            _product(weights[i], source, place, step, hidden, new, COLUMNS)
            _elu(hidden[new : new + rows * COLUMNS])
            hidden[new + rows * COLUMNS : new + (rows + 1) * COLUMNS] = ONE
            source, place, step = hidden, new, COLUMNS
        _product(weights[layers - 1], source, place, step, result, at, columns)


@numba.jit(**OPTIONS)
def _elu(h):
    for k in range(h.shape[0]):
        x = h[k]
        below = ZERO if x > ZERO else x  # NaN stays in both
        above = ZERO if x < ZERO else x
        h[k] = above + (exp2_low(below * LOG2_E) - ONE)
