# SPDX-License-Identifier: Apache-2.0
"""Convolutional networks, batch normalisation in both layouts, and auto-encoders."""
from make import golden, tf, tf1


def strides(layout, n):
    return [1, n, n, 1] if layout == "NHWC" else [1, 1, n, n]


def to_layout(x, layout):
    return x if layout == "NHWC" else tf.transpose(x, (0, 3, 1, 2))


def from_layout(x, layout):
    return x if layout == "NHWC" else tf.transpose(x, (0, 2, 3, 1))


@golden("lenet", steps=3, tolerance=1e-4, layout="NHWC")
@golden("lenet_nchw", steps=3, tolerance=1e-4, layout="NCHW", judge={"layout": "NHWC"})
def lenet(case, layout):
    images = case.feed("images", case.floats(4, 28, 28, 1, low=0), (None, 28, 28, 1))
    labels = case.feed("labels", case.ints(4, high=10), (None,))
    x = to_layout(images, layout)
    for name, before, after, padding in (("conv1", 1, 6, "SAME"), ("conv2", 6, 16, "VALID")):
        w = case.variable(f"{name}/w", 5, 5, before, after)
        b = case.variable(f"{name}/b", after, value=0.05)
        x = tf.nn.conv2d(x, w, strides(layout, 1), padding, data_format=layout)
        x = tf.nn.relu(tf.nn.bias_add(x, b, data_format=layout))
        x = tf1.nn.max_pool(x, strides(layout, 2), strides(layout, 2), "VALID", data_format=layout)
    x = tf.reshape(from_layout(x, layout), (-1, 400))
    for name, before, after in (("fc1", 400, 120), ("fc2", 120, 84), ("fc3", 84, 10)):
        x = tf.matmul(x, case.variable(f"{name}/w", before, after)) + case.variable(f"{name}/b", after, value=0)
        if name != "fc3":
            x = tf.nn.relu(x)
    loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=tf.one_hot(labels, 10), logits=x))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(x, 1, output_type=tf.int32), labels), tf.float32))
    case.fetch(loss, x, accuracy)
    case.target(tf1.train.MomentumOptimizer(0.01, 0.9).minimize(loss))


def batch_norm(case, layout, training):
    images = case.feed("images", case.floats(3, 5, 4, 6), (None, 5, 4, 6))
    scale = case.variable("gamma", 6, scale=2)
    offset = case.variable("beta", 6, scale=1)
    mean = case.variable("mean", 6, scale=0.2, trainable=False)
    variance = case.variable("variance", 6, value=0.7, trainable=False)
    x = to_layout(images, layout)
    if training:
        y, batch_mean, batch_variance = tf1.nn.fused_batch_norm(x, scale, offset, data_format=layout, epsilon=0.01)
        case.target(mean.assign_sub((mean - batch_mean) * 0.1), variance.assign_sub((variance - batch_variance) * 0.1))
        case.fetch(batch_mean, batch_variance)
    else:
        y, _, _ = tf1.nn.fused_batch_norm(x, scale, offset, mean, variance, data_format=layout, epsilon=0.01,
                                          is_training=False)
    y = from_layout(y, layout)
    case.fetch(y)
    case.fetch(*tf.gradients(tf.reduce_sum(tf.tanh(y) * images), [images, scale, offset]))


for _layout in ("NHWC", "NCHW"):
    for _training in (True, False):
        golden(f"batch_norm_{'training' if _training else 'inference'}_{_layout.lower()}", steps=2,
               layout=_layout, training=_training, judge={"layout": "NHWC"})(batch_norm)


@golden(steps=4, tolerance=1e-4)
def autoencoder(case):
    """Dense layers with tied weights."""
    x = case.feed("x", case.floats(12, 20, low=0), (None, 20))
    w = [case.variable("w1", 20, 10), case.variable("w2", 10, 3)]
    b = [case.variable(f"b{i}", n, value=0) for i, n in enumerate((10, 3, 10, 20))]
    code = tf.sigmoid(tf.matmul(tf.sigmoid(tf.matmul(x, w[0]) + b[0]), w[1]) + b[1], name="code")
    hidden = tf.sigmoid(tf.matmul(code, w[1], transpose_b=True) + b[2])
    logits = tf.matmul(hidden, w[0], transpose_b=True) + b[3]
    loss = tf.reduce_mean(tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits), 1))
    optimizer = tf1.train.AdamOptimizer(0.02)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, norm = tf.clip_by_global_norm(gradients, 0.5)
    case.target(optimizer.apply_gradients(zip(clipped, variables)))
    case.fetch(loss, code, norm)


@golden(steps=3, tolerance=1e-4)
def autoencoder_convolutional(case):
    """Strided convolutions down, transposed ones up."""
    x = case.feed("x", case.floats(2, 8, 8, 3, low=0), (None, 8, 8, 3))
    y = tf.nn.leaky_relu(tf.nn.conv2d(x, case.variable("down1", 3, 3, 3, 8), 2, "SAME"))
    y = tf.nn.elu(tf.nn.conv2d(y, case.variable("down2", 3, 3, 8, 4), 2, "SAME"))
    batch = tf.shape(x)[0]
    y = tf.nn.relu(tf.nn.conv2d_transpose(y, case.variable("up1", 3, 3, 8, 4), tf.stack([batch, 4, 4, 8]), 2))
    y = tf.nn.conv2d_transpose(y, case.variable("up2", 4, 4, 3, 8), tf.stack([batch, 8, 8, 3]), 2)
    loss = tf.reduce_mean(tf.square(y - x))
    case.target(tf1.train.RMSPropOptimizer(0.005).minimize(loss))
    case.fetch(loss, tf.reduce_mean(y, (1, 2)))
