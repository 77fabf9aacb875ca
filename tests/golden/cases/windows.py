# SPDX-License-Identifier: Apache-2.0
"""Ops with windows over images and volumes, with their gradients."""
from make import golden, np, tf, tf1


@golden(tolerance=1e-4)
def windows(case):
    x = case.feed("x", case.floats(2, 5, 6, 2), (None, 5, 6, 2))
    w = case.feed("w", case.floats(2, 3, 2, seed=2))
    ys = [tf.nn.max_pool_with_argmax(x, 2, [2, 3], "SAME", include_batch_in_index=True)[0]]
    for rates, padding in (([1, 2, 1, 1], "SAME"), ([1, 1, 2, 1], "VALID")):
        ys.append(tf.image.extract_patches(x, [1, 2, 3, 1], [1, 1, 2, 1], rates, padding))
        ys.append(tf1.nn.dilation2d(x, w, [1, 1, 2, 1], rates, padding))
    case.fetch_with_gradients(ys, [x, w])
    for whole in (False, True):
        case.fetch(tf.nn.max_pool_with_argmax(x, [2, 3], 2, "VALID", include_batch_in_index=whole)[1])


@golden(tolerance=1e-4)
def volumes(case):
    x = case.feed("x", case.floats(2, 3, 5, 4, 2), (None, 3, 5, 4, 2))
    w = case.feed("w", case.floats(2, 3, 2, 2, 3, seed=2))
    ys = [tf1.nn.conv3d(x, w, [1, 1, 2, 1, 1], padding) for padding in ("SAME", "VALID")]
    for padding in ("SAME", "VALID"):
        ys.append(tf1.nn.max_pool3d(x, [1, 2, 3, 2, 1], [1, 1, 2, 2, 1], padding))
        ys.append(tf1.nn.avg_pool3d(x, [1, 2, 3, 2, 1], [1, 1, 2, 2, 1], padding))
    case.fetch_with_gradients(ys, [x, w])


@golden("batch_norm_volumes", tolerance=1e-4, layout="NDHWC")
@golden("batch_norm_volumes_ncdhw", tolerance=1e-4, layout="NCDHW", judge={"layout": "NDHWC"})
def batch_norm_volumes(case, layout):
    """Batch norm over volumes, with gradients; the results have the channels last."""
    x = case.feed("x", case.floats(2, 2, 3, 4, 3), (None, 2, 3, 4, 3))
    scale, offset, mean = (case.feed(n, case.floats(3, seed=i)) for i, n in enumerate(["scale", "offset", "mean"], 2))
    variance = case.feed("variance", case.floats(3, low=0.5, high=2, seed=5))
    first = layout == "NCDHW"
    ys = []
    for training in (True, False):
        out = tf.raw_ops.FusedBatchNormV3(
            x=tf.transpose(x, [0, 4, 1, 2, 3]) if first else x, scale=scale, offset=offset, mean=mean,
            variance=variance, epsilon=0.01, data_format=layout, is_training=training)
        ys += [tf.transpose(out.y, [0, 2, 3, 4, 1]) if first else out.y]
        case.fetch(tf.identity(out.batch_mean), tf.identity(out.batch_variance))
    case.fetch_with_gradients(ys, [x, scale, offset])


@golden(tolerance=1e-4)
def second_gradients(case):
    """The gradient of a maximum's gradient, which is the maximum's place again."""
    x = case.feed("x", case.floats(1, 6, 6, 2), (None, 6, 6, 2))
    v = case.feed("v", case.floats(1, 4, 4, 4, 2, seed=2), (None, 4, 4, 4, 2))
    y = tf.nn.max_pool2d(x, 2, 2, "VALID")
    (dx,) = tf.gradients(y * y, x)
    z = tf.nn.max_pool3d(v, 2, 2, "SAME")
    (dv,) = tf.gradients(z * z, v)
    case.fetch(dx, dv, *tf.gradients(dx * dx, x), *tf.gradients(dv * dv, v))
    size = case.feed("size", np.int32([1, 2, 3, 1]))
    for padding in ("SAME", "VALID"):
        y = tf.raw_ops.MaxPoolV2(input=x, ksize=size, strides=[1, 2, 1, 1], padding=padding)
        (dx,) = tf.gradients(y * y, x)
        case.fetch(y, dx)
        grad = tf.raw_ops.MaxPoolGradV2(orig_input=x, orig_output=y, grad=y + 1, ksize=size, strides=[1, 2, 1, 1],
                                        padding=padding)
        case.fetch(grad, tf.raw_ops.MaxPoolGradGradV2(orig_input=x, orig_output=y, grad=grad, ksize=size,
                                                      strides=[1, 2, 1, 1], padding=padding))


@golden(tolerance=1e-4)
def fractional_pools(case):
    R = tf.raw_ops
    x = case.feed("x", case.floats(2, 9, 11, 2))
    for pool in (R.FractionalMaxPool, R.FractionalAvgPool):
        for pseudo_random in (False, True):
            for overlapping in (False, True):
                out = pool(value=x, pooling_ratio=[1.0, 1.44, 2.3, 1.0], pseudo_random=pseudo_random,
                           overlapping=overlapping, deterministic=True, seed=3, seed2=5)
                case.fetch_with_gradients([out.output], [x])
                case.fetch(out.row_pooling_sequence, out.col_pooling_sequence)


@golden()
def glimpses(case):
    R = tf.raw_ops
    x = case.feed("x", case.floats(2, 5, 7, 2), (None, 5, 7, 2))
    at = case.feed("at", np.float32([[[0, 0], [0.5, -0.5]], [[1, 2], [-1, -1]], [[-2, 5], [10, 10]]]))
    for op in (R.ExtractGlimpse, R.ExtractGlimpseV2):
        for centered in (False, True):
            for normalized in (False, True):
                for i in range(3):
                    case.fetch(op(input=x, size=[3, 4], offsets=at[i], centered=centered, normalized=normalized,
                                  uniform_noise=False, noise="zero"))
    case.fetch(tf.image.extract_glimpse(x, [8, 9], at[0], noise="zero"))
    case.fetch(tf.shape(tf1.image.extract_glimpse(x, [8, 9], at[0])))


@golden(tolerance=1e-4)
def volume_patches(case):
    x = case.feed("x", case.floats(2, 3, 5, 4, 2), (None, 3, 5, 4, 2))
    ys = [tf1.extract_volume_patches(x, [1, 2, 3, 2, 1], strides, padding)
          for strides, padding in (([1, 1, 2, 1, 1], "SAME"), ([1, 1, 1, 2, 1], "VALID"))]
    case.fetch_with_gradients(ys, [x])
    for dtype in (tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.int64):
        patches = tf1.extract_volume_patches(tf.cast(x * 20 + 30, dtype), [1, 1, 2, 2, 1], [1, 2, 1, 3, 1], "SAME")
        case.fetch(tf.cast(patches, tf.float32))


@golden()
def global_normalization(case):
    """The batch norm of graphs before FusedBatchNorm, as those of the first Inception networks."""
    case.as_of(8)
    x = case.feed("x", case.floats(2, 3, 2, 5), (None, 3, 2, 5))
    mean, beta, gamma = (case.floats(5, seed=i) for i in (2, 3, 4))
    variance = case.floats(5, low=0.1, high=2.0, seed=5)
    for scaled in (False, True):
        case.fetch(tf.raw_ops.BatchNormWithGlobalNormalization(
            t=x, m=mean, v=variance, beta=beta, gamma=gamma, variance_epsilon=0.01, scale_after_normalization=scaled))


@golden()
def windows_too_large(case):
    """Windows larger than what they go over, which TensorFlow rounds to none: nothing comes of them."""
    x = case.feed("x", case.floats(2, 3, 5, 2), (None, None, None, 2))
    w = case.feed("w", case.floats(4, 2, 2, 3, seed=2), (None, None, 2, 3))
    volume = case.feed("volume", case.floats(1, 3, 3, 4, 1), (None, None, None, None, 1))
    y = tf.nn.conv2d(x, w, 1, "VALID")
    case.fetch(tf.shape(y), tf.gradients(y, x)[0])
    case.fetch(*[tf.shape(y) for y in (
        tf.nn.conv2d(x, w, 3, "VALID"), tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "VALID"),
        tf.nn.max_pool2d(x, 4, 1, "VALID"), tf.nn.avg_pool2d(x, [4, 2], 2, "VALID"),
        tf.nn.max_pool_with_argmax(x, 4, 1, "VALID")[1], tf.nn.dilation2d(x, w[..., 0], [1] * 4, "VALID", "NHWC", [1] * 4),
        tf.nn.conv3d(volume, w[:, :, :1, None], [1] * 5, "VALID"), tf.nn.max_pool3d(volume, 4, 1, "VALID"),
        tf.nn.avg_pool3d(volume, 4, 1, "VALID"), tf.image.extract_patches(x, [1, 4, 2, 1], [1] * 4, [1] * 4, "VALID"))])
