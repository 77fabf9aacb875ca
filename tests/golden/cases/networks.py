# SPDX-License-Identifier: Apache-2.0
"""Small relatives of well-known convolutional networks, trained for a few steps."""
import numpy as np

from images import from_layout, strides, to_layout
from make import golden, initializer, tf, tf1


class Layers:
    """Layers with variables of a case, in one layout."""

    def __init__(self, case, layout="NHWC", training=True):
        self.case, self.layout, self.training = case, layout, training
        self.channels_axis = 3 if layout == "NHWC" else 1

    def channels(self, x):
        return x.shape[self.channels_axis]

    def conv(self, name, x, size, after, stride=1, padding="SAME"):
        w = self.case.variable(f"{name}/w", size, size, self.channels(x), after)
        return tf.nn.conv2d(x, w, strides(self.layout, stride), padding, data_format=self.layout)

    def bias(self, name, x):
        b = self.case.variable(f"{name}/b", self.channels(x), value=0.05)
        return tf.nn.bias_add(x, b, data_format=self.layout)

    def norm(self, name, x):
        """Fused batch norm, whose moving averages are updated in training."""
        n, case = self.channels(x), self.case
        gamma = case.variable(f"{name}/gamma", n, value=1)
        beta = case.variable(f"{name}/beta", n, scale=0.5)
        mean = case.variable(f"{name}/mean", n, scale=0.1, trainable=False)
        variance = case.variable(f"{name}/variance", n, value=1, trainable=False)
        if not self.training:
            return tf1.nn.fused_batch_norm(x, gamma, beta, mean, variance, 1e-3, self.layout, is_training=False)[0]
        y, batch_mean, batch_variance = tf1.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-3, data_format=self.layout)
        case.target(mean.assign_sub((mean - batch_mean) * 0.1), variance.assign_sub((variance - batch_variance) * 0.1))
        return y

    def depthwise(self, name, x, stride=1):
        w = self.case.variable(f"{name}/w", 3, 3, self.channels(x), 1, scale=0.6)
        return tf1.nn.depthwise_conv2d_native(x, w, strides(self.layout, stride), "SAME", data_format=self.layout)

    def max_pool(self, x, size, stride, padding="VALID"):
        s = strides(self.layout, size)
        return tf1.nn.max_pool(x, s, strides(self.layout, stride), padding, data_format=self.layout)

    def dense(self, name, x, after):
        w = self.case.variable(f"{name}/w", x.shape[1], after)
        return tf.matmul(x, w) + self.case.variable(f"{name}/b", after, value=0)


def train(case, logits, labels, optimizer):
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    regular = 1e-3 * tf.add_n([tf.nn.l2_loss(v) for v in tf1.trainable_variables() if v.shape.rank > 1])
    case.fetch(loss, logits)
    case.target(optimizer.minimize(loss + regular))


@golden(steps=3, tolerance=1e-4)
def vgg(case):
    """Pairs of 3x3 convolutions, pools, dense layers."""
    x = case.feed("images", case.floats(2, 16, 16, 3), (None, 16, 16, 3))
    labels = case.feed("labels", np.int32([1, 3]), (None,))
    layers = Layers(case)
    for i, n in enumerate((4, 6)):
        for j in range(2):
            x = tf.nn.relu(layers.bias(f"b{i}{j}", layers.conv(f"c{i}{j}", x, 3, n)))
        x = layers.max_pool(x, 2, 2)
    x = tf.reshape(x, (-1, 4 * 4 * 6))
    x = tf.nn.dropout(tf.nn.relu(layers.dense("d1", x, 10)), rate=0.0)
    train(case, layers.dense("d2", x, 5), labels, tf1.train.GradientDescentOptimizer(0.1))


@golden(steps=3, tolerance=1e-4)
def inception(case):
    """A block of four branches joined on the channels, with an average pool over the image behind."""
    x = case.feed("images", case.floats(2, 9, 9, 5), (None, 9, 9, 5))
    labels = case.feed("labels", np.int32([2, 0]), (None,))
    layers = Layers(case)
    conv = lambda name, x, size, n: tf.nn.relu(layers.bias(name, layers.conv(name, x, size, n)))  # noqa: E731
    branches = [conv("one", x, 1, 3), conv("three", conv("three_in", x, 1, 2), 3, 4),
                conv("five", conv("five_in", x, 1, 2), 5, 2), conv("pool", layers.max_pool(x, 3, 1, "SAME"), 1, 3)]
    x = tf.concat(branches, 3)
    x = tf1.nn.avg_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")
    x = tf1.nn.lrn(x, depth_radius=2, bias=1.0, alpha=1e-2, beta=0.75)
    x = tf1.nn.avg_pool(x, [1, 5, 5, 1], [1, 1, 1, 1], "VALID")
    train(case, layers.dense("logits", tf.squeeze(x, (1, 2)), 4), labels, tf1.train.RMSPropOptimizer(0.003, momentum=0.9))


@golden("resnet", steps=3, tolerance=1e-4, layout="NHWC")
@golden("resnet_nchw", steps=3, tolerance=1e-4, layout="NCHW", judge={"layout": "NHWC"})
def resnet(case, layout):
    """A block with a projection and one without, batch norm in training."""
    images = case.feed("images", case.floats(3, 8, 8, 3), (None, 8, 8, 3))
    labels = case.feed("labels", np.int32([2, 0, 1]), (None,))
    layers = Layers(case, layout)
    x = tf.nn.relu(layers.norm("n0", layers.conv("c0", to_layout(images, layout), 3, 4)))
    for i, (n, stride) in enumerate(((6, 2), (6, 1))):
        short = layers.norm(f"s{i}", layers.conv(f"p{i}", x, 1, n, stride)) if stride > 1 else x
        y = tf.nn.relu(layers.norm(f"a{i}", layers.conv(f"ca{i}", x, 3, n, stride)))
        y = layers.norm(f"b{i}", layers.conv(f"cb{i}", y, 3, n))
        x = tf.nn.relu(y + short)
    x = tf.reduce_mean(from_layout(x, layout), (1, 2))
    train(case, layers.dense("logits", x, 4), labels, tf1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True))


@golden("mobilenet", steps=3, tolerance=1e-4, layout="NHWC", training=True)
@golden("mobilenet_nchw", steps=3, tolerance=1e-4, layout="NCHW", training=True, judge={"layout": "NHWC"})
@golden("mobilenet_inference", tolerance=1e-4, layout="NHWC", training=False)
@golden("mobilenet_inference_nchw", tolerance=1e-4, layout="NCHW", training=False, judge={"layout": "NHWC"})
def mobilenet(case, layout, training):
    """An inverted residual with a depthwise convolution, clipped at six."""
    images = case.feed("images", case.floats(2, 8, 8, 3), (None, 8, 8, 3))
    layers = Layers(case, layout, training)
    x = tf.nn.relu6(layers.norm("n0", layers.conv("c0", to_layout(images, layout), 3, 4, 2)))
    y = tf.nn.relu6(layers.norm("ne", layers.conv("expand", x, 1, 8)))
    y = tf.nn.relu6(layers.norm("nd", layers.depthwise("depthwise", y)))
    x += layers.norm("np", layers.conv("project", y, 1, 4))
    x = layers.norm("nl", layers.depthwise("last", x, 2))
    x = tf.reduce_mean(from_layout(x, layout), (1, 2))
    logits = layers.dense("logits", x, 4)
    if training:
        labels = case.feed("labels", np.int32([2, 0]), (None,))
        train(case, logits, labels, tf1.train.AdamOptimizer(0.01))
    else:
        case.fetch(logits, tf.nn.softmax(logits), tf.argmax(logits, 1), tf.nn.top_k(logits, 2).indices)


@golden(steps=3, tolerance=1e-4)
def layers(case):
    """tf.compat.v1.layers: variables of their own, updates of moving averages and regularisers in collections."""
    x = case.feed("images", case.floats(3, 8, 8, 2), (None, 8, 8, 2))
    labels = case.feed("labels", np.int32([2, 0, 1]), (None,))
    kernel = {"kernel_initializer": initializer, "kernel_regularizer": lambda w: 1e-3 * tf.nn.l2_loss(w)}
    y = tf1.layers.conv2d(x, 4, 3, padding="same", use_bias=False, **kernel)
    y = tf1.layers.batch_normalization(y, training=True, momentum=0.9)
    y = tf1.layers.max_pooling2d(tf.nn.relu(y), 2, 2)
    y = tf1.layers.separable_conv2d(y, 5, 3, depthwise_initializer=initializer, pointwise_initializer=initializer)
    y = tf1.layers.conv2d_transpose(tf.nn.elu(y), 3, 3, 2, "same", **kernel)
    y = tf1.layers.dropout(tf1.layers.average_pooling2d(y, 2, 2), 0.0, training=True)
    y = tf1.layers.dense(tf1.layers.flatten(y), 6, tf.nn.softplus, **kernel)
    logits = tf1.layers.dense(y, 4, **kernel)
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits) + tf1.losses.get_regularization_loss()
    case.fetch(loss, logits)
    with tf1.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
        case.target(tf1.train.AdamOptimizer(0.01).minimize(loss, tf1.train.create_global_step()))


@golden(steps=3, tolerance=1e-4)
def gan(case):
    """A generator with transposed convolutions and resizing, a discriminator, two optimizers in turn."""
    noise = case.feed("noise", case.floats(3, 6), (None, 6))
    real = case.feed("real", case.floats(3, 8, 8, 1), (None, 8, 8, 1))

    def generator(z):
        with tf1.variable_scope("generator"):
            layers = Layers(case)
            x = tf.reshape(tf.nn.relu(layers.dense("d", z, 2 * 2 * 4)), (-1, 2, 2, 4))
            w = case.variable("up/w", 3, 3, 4, 4)
            x = tf.nn.relu(tf.nn.conv2d_transpose(x, w, tf.stack([tf.shape(x)[0], 4, 4, 4]), 2))
            x = layers.conv("c1", tf1.image.resize_nearest_neighbor(x, (6, 6)), 3, 3)
            return tf.tanh(layers.conv("c2", tf1.image.resize_bilinear(x, (8, 8)), 3, 1))

    def discriminator(x, reuse):
        with tf1.variable_scope("discriminator", reuse=reuse):
            layers = Layers(case)
            x = tf.nn.leaky_relu(layers.conv("c1", x, 3, 3, 2))
            x = tf.nn.leaky_relu(layers.conv("c2", x, 3, 4, 2), 0.1)
            return layers.dense("d", tf.reshape(x, (-1, 16)), 1)

    fake = generator(noise)
    on_real, on_fake = discriminator(real, False), discriminator(fake, True)
    cross = tf.nn.sigmoid_cross_entropy_with_logits
    loss_d = tf.reduce_mean(cross(labels=tf.ones_like(on_real) * 0.9, logits=on_real) +
                            cross(labels=tf.zeros_like(on_fake), logits=on_fake))
    loss_g = tf.reduce_mean(cross(labels=tf.ones_like(on_fake), logits=on_fake))
    variables = lambda scope: tf1.trainable_variables(scope)  # noqa: E731
    train_d = tf1.train.AdamOptimizer(0.01, beta1=0.5).minimize(loss_d, var_list=variables("discriminator"))
    case.fetch(loss_d, loss_g)
    with tf1.control_dependencies([train_d]):
        case.target(tf1.train.AdamOptimizer(0.01, beta1=0.5).minimize(loss_g, var_list=variables("generator")))
