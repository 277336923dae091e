"""The parts of `fused` that are not matrix products, forwards and backwards; features fill the vectors.

Nodes of all graphs are counted through; a block begins with all pairs of node `first`. Its row p is the pair of node
r = first + p // n with node p % n of the same graph g = r // n. mask (B, n) is 1 at real nodes. What products give
and take is float32 or bfloat16, the rest float32.
"""

from __future__ import annotations

import numba
import numpy as np

from isostep.network.arithmetic import APART, LOG2_E, ONE, OPTIONS, exp2, narrow, wide

ZERO = np.float32(0)
EPS = np.float32(1e-5)  # of LayerNorm
LOWEST = np.float32(-np.inf)


@numba.jit(**APART)
def attend(both, first, mask, nodes, film, out, norms, bias, z):
    """both: (e_mul, e_add)(E) without bias. z = film_mul Y + film_add. nodes = q, k, v."""
    n, width = mask.shape[1], out.shape[1]
    tops = np.empty((2, width), np.float32)  # two in turn: a maximum in place would become branches, not vectors
    total = np.empty(width, np.float32)
    mul, Y = np.empty(width, np.float32), np.empty((n, width), np.float32)
    for r in range(first, first + len(both) // n):
        g = r // n
        start = (r - first) * n
        for f in range(width):
            tops[0, f] = LOWEST
        for j in range(n):
            pair, other = both[start + j], nodes[g * n + j]
            real = mask[g, r - g * n] * mask[g, j]
            before, after = tops[j % 2], tops[1 - j % 2]
            _weigh(
                pair[:width], pair[width:], nodes[r, :width], other[width : 2 * width], bias[:width], bias[width:],
                real, mul, Y[j],
            )  # fmt: skip
            _raise(Y[j], before, after)
        top, reached = tops[n % 2], out[r]
        for f in range(width):
            total[f] = ZERO
            reached[f] = ZERO
        for j in range(n):
            _share(
                Y[j], top, nodes[g * n + j, 2 * width :], film[g, :width], film[g, width:], total, reached, z[start + j]
            )
        for f in range(width):
            total[f] = ONE / total[f]
            reached[f] *= total[f]
            norms[0, r, f] = top[f]
            norms[1, r, f] = total[f]


@numba.jit(**APART)
def _weigh(e_mul, e_add, q, k, mul_bias, add_bias, real, mul, Y):
    """mul = 1 + e_mul, Y = (mul q k + e_add) * mask."""
    for f in range(len(Y)):
        m = wide(e_mul[f]) + mul_bias[f]
        mul[f] = m
        Y[f] = (m * q[f] * k[f] + wide(e_add[f]) + add_bias[f]) * real


@numba.jit(**APART)
def _raise(Y, before, top):
    for f in range(len(Y)):
        weight, most = Y[f], before[f]
        top[f] = weight if weight > most else most


@numba.jit(**APART)
def _share(Y, top, v, film_mul, film_add, total, reached, z):
    for f in range(len(top)):
        share = exp2((Y[f] - top[f]) * LOG2_E)
        total[f] += share
        reached[f] += share * v[f]
        z[f] = narrow(Y[f] * film_mul[f] + film_add[f], z)


@numba.jit(**APART)
def attend_back(both, first, mask, nodes, film, out, norms, bias, dz, dboth, dout, dnodes, dfilm, dbias):
    """Gradients of `attend`: dboth is set, the others (dbias unless it is None) are added to; dz becomes z."""
    n, width = mask.shape[1], out.shape[1]
    mul, Y = np.empty(width, np.float32), np.empty(width, np.float32)
    for r in range(first, first + len(both) // n):
        g = r // n
        for j in range(n):
            p, c = (r - first) * n + j, g * n + j
            real = mask[g, r - g * n] * mask[g, j]
            _weigh(
                both[p, :width], both[p, width:], nodes[r, :width], nodes[c, width : 2 * width],
                bias[:width], bias[width:], real, mul, Y,
            )  # fmt: skip
            _pull(
                mul, Y, norms[0, r], norms[1, r],
                nodes[r, :width], nodes[c, width : 2 * width], nodes[c, 2 * width :], out[r], dout[r], film[g, :width],
                real, dz[p], dboth[p, :width], dboth[p, width:],
                dnodes[r, :width], dnodes[c, width : 2 * width], dnodes[c, 2 * width :],
            )  # fmt: skip
            _film_back(Y, film[g, :width], film[g, width:], dz[p], dfilm[g, :width], dfilm[g, width:])
            if dbias is not None:
                _add(dbias, dboth[p])


@numba.jit(**APART)
def _pull(mul, Y, top, inverse, q, k, v, out, dout, film_mul, real, dz, dmul, dY, dq, dk, dv):
    for f in range(len(dz)):
        share = exp2((Y[f] - top[f]) * LOG2_E) * inverse[f] * dout[f]
        dv[f] += share
        d = (wide(dz[f]) * film_mul[f] + share * (v[f] - out[f])) * real
        dY[f] = narrow(d, dY)
        through = d * mul[f]
        dmul[f] = narrow(d * q[f] * k[f], dmul)
        dq[f] += through * k[f]
        dk[f] += through * q[f]


@numba.jit(**APART)
def _film_back(Y, film_mul, film_add, dz, dmul, dadd):
    for f in range(len(dz)):
        outer = wide(dz[f])
        dmul[f] += outer * Y[f]
        dadd[f] += outer
        dz[f] = narrow(Y[f] * film_mul[f] + film_add[f], dz)


@numba.jit(**APART)
def _add(total, row):
    for f in range(len(total)):
        total[f] += wide(row[f])


@numba.jit(**APART)
def add(total, rows):
    for p in range(len(rows)):
        _add(total[p], rows[p])


@numba.jit(**APART)
def _copy(to, row):
    for f in range(len(row)):
        to[f] = narrow(row[f], to)


@numba.jit(**OPTIONS)  # `out` may be `h`
def residual_norm(h, more, bias, first, mask, weight, shift, centred, scales, out, low):
    """out = LayerNorm(h + (more + bias) * mask of the pair), and `low` too unless it is None; `centred` and `scales`
    are for the way back."""
    n, width = mask.shape[1], h.shape[1]
    share = ONE / np.float32(width)
    for p in range(len(h)):
        r = first + p // n
        g = r // n
        real = mask[g, r - g * n] * mask[g, p % n]
        row, new, to, c = h[p], more[p], out[p], centred[p]
        mean = ZERO
        for f in range(width):
            x = row[f] + (wide(new[f]) + bias[f]) * real
            c[f] = x
            mean += x
        mean *= share
        squares = ZERO
        for f in range(width):
            d = c[f] - mean
            squares += d * d
        scale = ONE / np.sqrt(squares * share + EPS)
        scales[p] = scale
        for f in range(width):
            d = (c[f] - mean) * scale
            c[f] = d
            to[f] = d * weight[f] + shift[f]
        if low is not None:
            _copy(low[p], to)


@numba.jit(**APART)
def norm_back(dout, weight, centred, scales, dweight, dshift, dh, low):
    """dh is set, and `low` too unless it is None; dweight and dshift are added to."""
    width = dout.shape[1]
    share = ONE / np.float32(width)
    for p in range(len(dout)):
        g, c, to = dout[p], centred[p], dh[p]
        mean = ZERO
        along = ZERO
        for f in range(width):
            d = g[f] * weight[f]
            mean += d
            along += d * c[f]
        for f in range(width):
            dweight[f] += g[f] * c[f]
            dshift[f] += g[f]
        mean *= share
        along *= share
        scale = scales[p]
        for f in range(width):
            to[f] = (g[f] * weight[f] - mean - c[f] * along) * scale
        if low is not None:
            _copy(low[p], to)


@numba.jit(**APART)
def relu(h, bias):
    """max(h + bias, 0), in place."""
    for p in range(len(h)):
        row = h[p]
        for f in range(h.shape[1]):
            x = wide(row[f]) + bias[f]
            row[f] = narrow(ZERO if x < ZERO else x, row)


@numba.jit(**APART)
def relu_back(h, dh, dbias):
    """dh in place; dbias is added to."""
    for p in range(len(h)):
        row, d = h[p], dh[p]
        for f in range(h.shape[1]):
            x = wide(d[f]) if wide(row[f]) > ZERO else ZERO
            d[f] = narrow(x, d)
            dbias[f] += x


@numba.jit(**APART)
def masked(rows, first, mask, total, out):
    """out = rows * mask of the pair; `total` += their sum."""
    n = mask.shape[1]
    for p in range(len(rows)):
        r = first + p // n
        g = r // n
        real = mask[g, r - g * n] * mask[g, p % n]
        row, to = rows[p], out[p]
        for f in range(rows.shape[1]):
            x = row[f] * real
            to[f] = narrow(x, to)
            total[f] += x


@numba.jit(**APART)
def affine(rows, bias, mask, out):
    """out = (rows + bias) * mask of the row."""
    for p in range(len(rows)):
        real, row, to = mask[p], rows[p], out[p]
        for f in range(rows.shape[1]):
            to[f] = (wide(row[f]) + bias[f]) * real


@numba.jit(**APART)
def affine_back(dout, mask, dbias, drows):
    """drows is set, dbias added to."""
    for p in range(len(dout)):
        real, row, to = mask[p], dout[p], drows[p]
        for f in range(dout.shape[1]):
            x = row[f] * real
            to[f] = narrow(x, to)
            dbias[f] += x


@numba.jit(**APART)
def pool(rows, out):
    """[mean, min, max, std] over rows (B, R, width): out (B, 4, width)."""
    graphs, length, width = rows.shape
    ends = np.empty((2, 2, width), np.float32)
    share, rest = ONE / np.float32(length), ONE / np.float32(max(length - 1, 1))
    for g in range(graphs):
        mean, std = out[g, 0], out[g, 3]
        for f in range(width):
            ends[0, 0, f] = rows[g, 0, f]
            ends[0, 1, f] = rows[g, 0, f]
            mean[f] = ZERO
            std[f] = ZERO
        for r in range(length):
            row, before, after = rows[g, r], ends[r % 2], ends[1 - r % 2]
            _add(mean, row)
            for f in range(width):
                x, least, most = row[f], before[0, f], before[1, f]
                after[0, f] = x if x < least else least
                after[1, f] = x if x > most else most
        for f in range(width):
            mean[f] *= share
            out[g, 1, f] = ends[length % 2, 0, f]
            out[g, 2, f] = ends[length % 2, 1, f]
        for r in range(length):
            row = rows[g, r]
            for f in range(width):
                d = row[f] - mean[f]
                std[f] += d * d
        for f in range(width):
            std[f] = np.sqrt(std[f] * rest)


@numba.jit(**APART)
def pool_back(rows, out, dout, drows):
    """Equal minima and maxima share their gradient."""
    graphs, length, width = rows.shape
    share, rest = ONE / np.float32(length), ONE / np.float32(max(length - 1, 1))
    ties = np.empty((2, width), np.float32)
    slope = np.empty(width, np.float32)
    for g in range(graphs):
        mean, least, most, std = out[g, 0], out[g, 1], out[g, 2], out[g, 3]
        low, high = ties[0], ties[1]
        for f in range(width):
            low[f] = ZERO
            high[f] = ZERO
        for r in range(length):
            row = rows[g, r]
            for f in range(width):
                low[f] += ONE if row[f] == least[f] else ZERO
                high[f] += ONE if row[f] == most[f] else ZERO
        for f in range(width):
            low[f] = dout[g, 1, f] / low[f]
            high[f] = dout[g, 2, f] / high[f]
            slope[f] = dout[g, 3, f] * rest / std[f] if std[f] > ZERO else ZERO
        dmean = dout[g, 0]
        for r in range(length):
            row, to = rows[g, r], drows[g, r]
            for f in range(width):
                d = dmean[f] * share + slope[f] * (row[f] - mean[f])
                d += low[f] if row[f] == least[f] else ZERO
                to[f] = d + (high[f] if row[f] == most[f] else ZERO)
