"""The parts of `fused` that are not matrix products, forwards and backwards; features fill the vectors.

Nodes of all graphs are counted through; a block begins with all pairs of node `first`. Its row p is the pair of node
r = first + p // n with node p % n of the same graph g = r // n. mask (B, n) is 1 at real nodes.
"""

from __future__ import annotations

import numba
import numpy as np

from isostep.network.arithmetic import LOG2_E, ONE, OPTIONS, exp2

ZERO = np.float32(0)
EPS = np.float32(1e-5)  # of LayerNorm
LOWEST = np.float32(-np.inf)


@numba.jit(**OPTIONS)
def attend(both, first, nodes, mask, film, bias, out, norms, z):
    """both: (e_mul, e_add)(E) without bias, becomes (1 + e_mul, Y). z = film_mul Y + film_add. nodes = q, k, v."""
    n, width = mask.shape[1], out.shape[1]
    tops = np.empty((2, width), np.float32)  # two in turn: a maximum in place would become branches, not vectors
    total = np.empty(width, np.float32)
    for r in range(first, first + len(both) // n):
        g = r // n
        start = (r - first) * n
        for f in range(width):
            tops[0, f] = LOWEST
        for j in range(n):
            real = mask[g, r - g * n] * mask[g, j]
            _weigh(both[start + j], nodes[r], nodes[g * n + j], bias, real, tops[j % 2], tops[1 - j % 2])
        top, reached = tops[n % 2], out[r]
        for f in range(width):
            total[f] = ZERO
            reached[f] = ZERO
        for j in range(n):
            _share(both[start + j], top, nodes[g * n + j], total, reached)
        for f in range(width):
            total[f] = ONE / total[f]
            reached[f] *= total[f]
            norms[0, r, f] = top[f]
            norms[1, r, f] = total[f]
        for j in range(n):
            _modulate(both[start + j], film[g], z[start + j])


@numba.jit(**OPTIONS)
def _weigh(pair, one, other, bias, real, before, top):
    width = len(top)
    for f in range(width):
        mul = pair[f] + bias[f]
        pair[f] = mul
        weight = (mul * one[f] * other[width + f] + pair[width + f] + bias[width + f]) * real
        pair[width + f] = weight
        most = before[f]
        top[f] = weight if weight > most else most


@numba.jit(**OPTIONS)
def _share(pair, top, node, total, reached):
    width = len(top)
    for f in range(width):
        share = exp2((pair[width + f] - top[f]) * LOG2_E)
        total[f] += share
        reached[f] += share * node[2 * width + f]


@numba.jit(**OPTIONS)
def _modulate(pair, film, z):
    width = len(z)
    for f in range(width):
        z[f] = pair[width + f] * film[f] + film[width + f]


@numba.jit(**OPTIONS)
def modulate(both, first, n, film, z):
    """z = film_mul Y + film_add."""
    for p in range(len(z)):
        _modulate(both[p], film[(first + p // n) // n], z[p])


@numba.jit(**OPTIONS)
def attend_back(both, first, nodes, mask, film, out, norms, dz, dout, dboth, dnodes, dfilm):
    """Gradients of `attend`: dboth is set, the others are added to."""
    n = mask.shape[1]
    for r in range(first, first + len(both) // n):
        g = r // n
        for j in range(n):
            p, c = (r - first) * n + j, g * n + j
            real = mask[g, r - g * n] * mask[g, j]
            _pull(
                both[p], dz[p], film[g], norms[0, r], norms[1, r], nodes[c], out[r], dout[r], dnodes[c], real, dboth[p]
            )
            _spread(both[p], nodes[r], nodes[c], dnodes[r], dnodes[c], dboth[p])
            _film_back(both[p], dz[p], dfilm[g])


@numba.jit(**OPTIONS)
def _pull(pair, dz, film, top, inverse, node, out, dout, dnode, real, dpair):
    width = len(dz)
    for f in range(width):
        share = exp2((pair[width + f] - top[f]) * LOG2_E) * inverse[f] * dout[f]
        dnode[2 * width + f] += share
        dpair[width + f] = (dz[f] * film[f] + share * (node[2 * width + f] - out[f])) * real


@numba.jit(**OPTIONS)
def _spread(pair, one, other, done, dother, dpair):
    width = len(pair) // 2
    for f in range(width):
        through = dpair[width + f] * pair[f]
        dpair[f] = dpair[width + f] * one[f] * other[width + f]
        done[f] += through * other[width + f]
        dother[width + f] += through * one[f]


@numba.jit(**OPTIONS)
def _film_back(pair, dz, dfilm):
    width = len(dz)
    for f in range(width):
        dfilm[f] += dz[f] * pair[width + f]
        dfilm[width + f] += dz[f]


@numba.jit(**OPTIONS)
def _add(total, row):
    for f in range(len(total)):
        total[f] += row[f]


@numba.jit(**OPTIONS)
def residual_norm(h, more, bias, first, mask, weight, shift, centred, scales, out):
    """out = LayerNorm(h + (more + bias) * mask of the pair); `centred` and `scales` are for the way back."""
    n, width = mask.shape[1], h.shape[1]
    share = ONE / np.float32(width)
    for p in range(len(h)):
        r = first + p // n
        g = r // n
        real = mask[g, r - g * n] * mask[g, p % n]
        row, new, to, c = h[p], more[p], out[p], centred[p]
        mean = ZERO
        for f in range(width):
            x = row[f] + (new[f] + bias[f]) * real
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


@numba.jit(**OPTIONS)
def norm_back(dout, weight, centred, scales, dweight, dshift, dh):
    """dh is set; dweight and dshift are added to."""
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


@numba.jit(**OPTIONS)
def scaled(centred, weight, shift, out):
    """The norm's result again."""
    for p in range(len(out)):
        row, to = centred[p], out[p]
        for f in range(out.shape[1]):
            to[f] = row[f] * weight[f] + shift[f]


@numba.jit(**OPTIONS)
def relu(h, bias):
    """max(h + bias, 0), in place."""
    for p in range(len(h)):
        row = h[p]
        for f in range(h.shape[1]):
            x = row[f] + bias[f]
            row[f] = ZERO if x < ZERO else x


@numba.jit(**OPTIONS)
def relu_back(h, dh, dbias):
    """dh in place; dbias is added to."""
    for p in range(len(h)):
        row, d = h[p], dh[p]
        for f in range(h.shape[1]):
            x = d[f] if row[f] > ZERO else ZERO
            d[f] = x
            dbias[f] += x


@numba.jit(**OPTIONS)
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
            to[f] = x
            total[f] += x


@numba.jit(**OPTIONS)
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


@numba.jit(**OPTIONS)
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
