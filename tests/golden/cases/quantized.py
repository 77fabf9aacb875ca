# SPDX-License-Identifier: Apache-2.0
"""Ops on integers that stand for the numbers of a range."""
import numpy as np

from make import golden, tf

R = tf.raw_ops
PLAIN = {tf.quint8: tf.uint8, tf.qint8: tf.int8, tf.qint32: tf.int32}


def quantized(case, name, dtype, *shape, seed=1):
    """A placeholder of plain integers over all that there are, and those as `dtype`."""
    plain = PLAIN[dtype].as_numpy_dtype
    ends = np.iinfo(plain)
    values = np.random.RandomState(seed).randint(ends.min, ends.max, shape, dtype=plain)
    return tf.bitcast(case.feed(name, values, (None,) * len(shape)), dtype)


def fetch(case, outputs):
    """The integers, as plain ones, and their range."""
    case.fetch(*[tf.bitcast(y, PLAIN[y.dtype]) if y.dtype in PLAIN else y for y in outputs])


@golden()
def quantized_sums(case):
    x, y = quantized(case, "x", tf.quint8, 4, 3), quantized(case, "y", tf.quint8, 4, 3, seed=2)
    row, one = quantized(case, "row", tf.quint8, 3, seed=3), quantized(case, "one", tf.quint8, 1, seed=4)
    a = {"min_x": tf.constant(-1.5), "max_x": tf.constant(3.0)}
    b = {"min_y": tf.constant(0.0), "max_y": tf.constant(0.7)}
    for u, v in ((x, y), (x, row), (row, x), (x, one), (one, x), (one, one)):
        fetch(case, R.QuantizedAdd(x=u, y=v, **a, **b))
        fetch(case, R.QuantizedMul(x=u, y=v, **a, **b))
    fetch(case, R.QuantizedMul(x=x, y=y, min_x=0.5, max_x=1.0, min_y=-3.0, max_y=-1.0))
    for dtype in (tf.quint8, tf.qint8):
        values = quantized(case, f"values_{dtype.name}", dtype, 2, 2, 3)
        bias = quantized(case, f"bias_{dtype.name}", dtype, 3, seed=6)
        fetch(case, R.QuantizedBiasAdd(input=values, bias=bias, min_input=-1.5, max_input=3.0, min_bias=-0.2, max_bias=0.1,
                                       out_type=tf.qint32))


@golden()
def quantized_products(case):
    low, high, least, most = [tf.constant(end) for end in (-1.0, 2.0, -0.3, 0.9)]
    ends = {"min_a": low, "max_a": high, "min_b": least, "max_b": most}
    for ta in (False, True):
        for tb in (False, True):
            a = quantized(case, f"a{ta}{tb}", tf.quint8, *((5, 4) if ta else (4, 5)))
            b = quantized(case, f"b{ta}{tb}", tf.quint8, *((3, 5) if tb else (5, 3)), seed=2)
            fetch(case, R.QuantizedMatMul(a=a, b=b, transpose_a=ta, transpose_b=tb, **ends))
    x = quantized(case, "x", tf.quint8, 2, 7, 6, 3)
    ends = {"min_input": low, "max_input": high, "min_filter": least, "max_filter": most}
    for size in (1, 2, 3):
        filters = quantized(case, f"filters{size}", tf.quint8, size, size, 3, 4, seed=size)
        for stride in (1, 2, 3):
            for padding in ("SAME", "VALID"):
                fetch(case, R.QuantizedConv2D(input=x, filter=filters, strides=[1, stride, stride, 1], padding=padding,
                                              **ends))
    ends["min_input"] = tf.constant(0.5)  # zero is no byte
    fetch(case, R.QuantizedConv2D(input=x, filter=filters, strides=[1, 1, 1, 1], padding="SAME", **ends))


@golden()
def quantized_batch_norm(case):
    inputs = {}
    for i, (name, low, high) in enumerate((("t", -1.0, 2.0), ("m", -0.2, 0.3), ("v", 0.0, 2.0), ("beta", -3.0, 1.0),
                                           ("gamma", 0.0, 2.0))):
        shape = (2, 3, 2, 5) if name == "t" else (5,)
        inputs |= {name: quantized(case, name, tf.quint8, *shape, seed=i), f"{name}_min": low, f"{name}_max": high}
    for scaled in (False, True):
        fetch(case, R.QuantizedBatchNormWithGlobalNormalization(
            **inputs, variance_epsilon=0.01, scale_after_normalization=scaled, out_type=tf.qint32))


@golden()
def quantized_ranges(case):
    x = quantized(case, "x", tf.qint32, 3, 4)
    for low, high in ((-3.0, 5.0), (-2.0, 2.0), (0.0, 1.0)):
        ends = {"input_min": tf.constant(low), "input_max": tf.constant(high)}
        for out in (tf.quint8, tf.qint8):
            for to in ((-1.0, 2.5), (0.0, 4.0), (-6.0, 0.0), (0.0, 0.0)):
                fetch(case, R.Requantize(input=x, requested_output_min=to[0], requested_output_max=to[1], out_type=out,
                                         **ends))
        fetch(case, R.RequantizationRange(input=x, **ends))
        fetch(case, R.QuantizeDownAndShrinkRange(input=x, out_type=tf.quint8, **ends))
    images = quantized(case, "images", tf.qint32, 2, 3, 2, 3)
    lows, highs = [-1.0, -2, -0.5], [1.0, 0.5, 3]
    for clip in (0.7, 100.0):
        fetch(case, R.RequantizationRangePerChannel(input=images, input_min=lows, input_max=highs, clip_value_max=clip))
    for out, low in ((tf.quint8, 0.0), (tf.qint8, -2.0)):
        fetch(case, R.RequantizePerChannel(input=images, input_min=lows, input_max=highs, requested_output_min=low,
                                           requested_output_max=2.5, out_type=out))
    for dtype in (tf.quint8, tf.qint32):
        parts = [quantized(case, f"part{i}_{dtype.name}", dtype, 2, i + 1, seed=i) for i in range(3)]
        lows, highs = [-1.0, -2.0, -1.0], [1.0, 3.0, 3.0]
        fetch(case, R.QuantizedConcat(concat_dim=1, values=parts, input_mins=lows, input_maxes=highs))
        fetch(case, R.QuantizedConcat(concat_dim=0, values=parts[1:2] * 2, input_mins=[-1.0] * 2, input_maxes=[1.0] * 2))
        fetch(case, R.QuantizedReshape(tensor=parts[2], shape=[3, -1], input_min=-1.0, input_max=2.0))
        for op in (R.QuantizedRelu, R.QuantizedRelu6):
            fetch(case, op(features=parts[2], min_features=-5.0, max_features=9.0, out_type=dtype))
            fetch(case, op(features=parts[2], min_features=1.0, max_features=3.0, out_type=dtype))


@golden()
def quantized_images(case):
    low, high = tf.constant(-1.0), tf.constant(2.0)
    for dtype in (tf.quint8, tf.qint8):
        x = quantized(case, f"x_{dtype.name}", dtype, 2, 7, 6, 3)
        for op in (R.QuantizedMaxPool, R.QuantizedAvgPool):
            for size, stride, padding in ((2, 2, "VALID"), (3, 1, "SAME"), (3, 2, "SAME"), (3, 2, "VALID")):
                fetch(case, op(input=x, min_input=low, max_input=high, ksize=[1, size, size, 1], padding=padding,
                               strides=[1, stride, stride, 1]))
    x = quantized(case, "x", tf.quint8, 2, 5, 4, 3)
    fetch(case, R.QuantizedInstanceNorm(x=x, x_min=low, x_max=high))
    fetch(case, R.QuantizedInstanceNorm(x=x, x_min=low, x_max=high, output_range_given=True, given_y_min=-1.5,
                                        given_y_max=2.0, variance_epsilon=0.1))
    fetch(case, R.QuantizedInstanceNorm(x=x, x_min=low, x_max=high, min_separation=9.0))
    fetch(case, R.QuantizedResizeBilinear(images=x, size=[5, 4], min=low, max=high))
    small = quantized(case, "small", tf.qint32, 1, 3, 4, 2)
    real = case.feed("real", case.floats(1, 3, 4, 2), (None,) * 4)
    for size in ((6, 5), (2, 9)):
        sizes = tf.constant(size)
        for align, half in ((False, False), (True, False), (False, True), (True, True)):
            for images in (x, small, real):
                y = R.QuantizedResizeBilinear(images=images, size=sizes, min=low, max=high, align_corners=align,
                                              half_pixel_centers=half)
                fetch(case, y[:1])


@golden()
def uniform_integers(case):
    """Integers of a scale and a zero point, of the whole tensor or of each slice."""
    x = case.feed("x", np.float32(np.arange(-12, 12)).reshape(2, 3, 4) * 0.25)
    for dtype, ends in ((tf.qint8, (-127, 127)), (tf.quint8, (0, 255)), (tf.qint32, (-2 ** 31, 2 ** 31 - 1))):
        for scales, zeros, axis in ((0.5, 3, -1), (0.01, -7, -1), ([0.3, 1.0, 0.02], [0, 1, -2], 1)):
            options = {"scales": np.float32(scales), "zero_points": np.int32(zeros), "quantization_axis": axis,
                       "quantization_min_val": ends[0], "quantization_max_val": ends[1]}
            y = R.UniformQuantize(input=x, Tout=dtype, **options)
            case.fetch(tf.bitcast(y, PLAIN[dtype]), R.UniformDequantize(input=y, Tout=tf.float32, **options))
