# SPDX-License-Identifier: Apache-2.0
"""Functions of numbers one by one: special functions, those with rules at zero, bits."""
import numpy as np

from make import golden, tf, tf1


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


@golden()
def seldom(case):
    """Ops that no function of the 1.x API emits any more, but that older graphs have."""
    R = tf.raw_ops
    x = case.feed("x", np.float32([0.5, -1.5, 2, 0.25]), (None,))
    y = case.feed("y", np.float32([2, 0.5, -3, 0.75]), (None,))
    z = tf.complex(x, y)
    case.fetch_with_gradients([tf1.placeholder_with_default(x, (None,)) * 2, R.CheckNumerics(tensor=x * y, message="m"),
                               R.AccumulateNV2(inputs=[x, y, x * y], shape=(4,))], [x, y])
    case.fetch(R.Angle(input=z), R.SoftplusGrad(gradients=y, features=x), R.InvGrad(y=x, dy=y),
               R.RandomGammaGrad(alpha=tf.abs(x), sample=tf.abs(y)),
               R.QuantizeAndDequantizeV3(input=x, input_min=-2.0, input_max=2.0, num_bits=4),
               R.UnravelIndex(indices=[11, 0, 7], dims=[3, 4]))
    scores = case.feed("scores", np.float32([[1, 3, 2, 3], [np.nan, 0, 1, 2], [5, 4, 4, 1]]), (None, 4))
    classes = [1, 2, 2]
    case.fetch(R.InTopK(predictions=scores, targets=classes, k=1), R.InTopKV2(predictions=scores, targets=classes, k=2))
    case.fetch(R.OptionalHasValue(optional=R.OptionalNone()),
               R.OptionalHasValue(optional=R.OptionalFromValue(components=[x])))
