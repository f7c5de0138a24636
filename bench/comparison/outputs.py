"""Whether two peers computed the same."""

import math

import numpy

# The largest difference, as a share of the reference's largest magnitude, that is called equal.
CLOSE = {"f32": 1e-3, "f16": 2e-2, "int8": 5e-2, "bf16": 5e-2}


def largest_difference(ours, theirs):
    """As a share of the largest magnitude; infinite if types, shapes or what is not finite differ."""
    if len(ours) != len(theirs):
        return math.inf
    worst = 0.0
    for a, b in zip(ours, theirs):
        if a.shape != b.shape or a.dtype != b.dtype:
            return math.inf
        a, b = a.astype("float64"), b.astype("float64")
        finite = numpy.isfinite(b)
        if not numpy.array_equal(finite, numpy.isfinite(a)):
            return math.inf
        if finite.any():
            scale = numpy.abs(b[finite]).max() or 1.0
            worst = max(worst, float(numpy.abs(a[finite] - b[finite]).max() / scale))
    return worst
