# SPDX-License-Identifier: Apache-2.0
"""Functions of numbers one by one: special functions, those with rules at zero, bits."""
import numpy as np

from make import golden, tf


@golden()
def special(case):
    """Gamma and its relatives, incomplete integrals, inverses of distributions."""
    x = case.feed("x", np.float64([0.3, 1.0, 2.5, 7.25, 40.0]), (None,))
    a = case.feed("a", np.float64([0.5, 2.0, 2.5, 9.0, 38.0]), (None,))
    p = case.feed("p", np.float64([0.01, 0.2, 0.5, 0.93, 0.999]), (None,))
    case.fetch_with_gradients([
        tf.math.lgamma(x), tf.math.digamma(x), tf.math.igamma(a, x), tf.math.igammac(a, x), tf.math.zeta(a + 1.5, x),
        tf.math.polygamma(tf.ones_like(x), x), tf.math.betainc(a, x / 4, p), tf.math.erfinv(p), tf.math.ndtri(p)], [x, a, p])
    ends = tf.constant([0.0, -1.0, -2.5, np.inf, np.nan], tf.float64)
    case.fetch(tf.math.lgamma(ends), tf.math.digamma(ends), tf.math.igamma(x, ends), tf.math.erfinv(ends),
               tf.math.ndtri(ends))


@golden()
def bessel(case):
    x = case.feed("x", np.float64([0.0, 0.4, 1.0, 2.75, 12.5, 45.0]), (None,))
    s = tf.math.special
    first = [s.bessel_i0(x), s.bessel_i0e(x), s.bessel_i1(x), s.bessel_i1e(x), s.bessel_j0(x), s.bessel_j1(x), s.dawsn(x),
             s.fresnel_cos(x), s.fresnel_sin(x), s.spence(x + 0.2)]
    positive = x + 0.5
    second = [s.bessel_k0(positive), s.bessel_k0e(positive), s.bessel_k1(positive), s.bessel_k1e(positive),
              s.bessel_y0(positive), s.bessel_y1(positive), s.expint(positive)]
    for y in first + second:
        case.fetch(y, tf.gradients(y, x)[0])


@golden()
def guarded(case):
    """Products and quotients that are 0 where one side is, angles, neighbours."""
    x = case.feed("x", np.float32([0, 0, 1.5, -2, 3]), (None,))
    y = case.feed("y", np.float32([0, 2, 0.5, 3, 0.25]), (None,))
    results = [tf.math.xlogy(x, y + 1), tf.math.xdivy(x, y + 1), tf.math.xlog1py(x, y), tf.math.multiply_no_nan(x, y),
               tf.math.divide_no_nan(x, y), tf.atan2(y + 1, x)]
    case.fetch_with_gradients(results, [x, y])
    case.fetch(tf.math.xlogy(x, y), tf.math.xdivy(x, y), tf.math.nextafter(x, y),
               tf.raw_ops.ApproximateEqual(x=x, y=x + 1e-6, tolerance=1e-5))
    u, v = tf.reshape(tf.concat([x, x[:1]], 0), (2, 3)), tf.reshape(tf.concat([y, y[:1]], 0), (2, 3))
    case.fetch_with_gradients([tf.linalg.cross(u, v)], [x, y])


@golden()
def bits(case):
    for dtype in (np.int8, np.uint16, np.int32, np.int64):
        a = case.feed(f"a_{np.dtype(dtype).name}", np.array([5, 127, 0, 88, 3]).astype(dtype))
        b = case.feed(f"b_{np.dtype(dtype).name}", np.array([1, 3, 7, 2, 0]).astype(dtype))
        case.fetch(tf.bitwise.bitwise_and(a, b), tf.bitwise.bitwise_or(a, b), tf.bitwise.bitwise_xor(a, b),
                   tf.bitwise.invert(a), tf.bitwise.left_shift(a, b), tf.bitwise.right_shift(a, b),
                   tf.raw_ops.PopulationCount(x=a), tf.truncatemod(tf.cast(a, tf.int32), 3))
