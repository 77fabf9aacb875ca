# SPDX-License-Identifier: Apache-2.0
# The networks of bench/networks/networks.h as ONNX models for inference, with random weights.
import numpy
from onnx import TensorProto, checker, helper, numpy_helper


class Builder:
    def __init__(self):
        self.nodes, self.weights, self.random = [], [], numpy.random.default_rng(1)

    def weight(self, shape, scale=None):
        scale = scale if scale is not None else (2 / max(1, int(numpy.prod(shape[1:])))) ** 0.5
        values = (self.random.standard_normal(shape) * scale).astype(numpy.float32)
        return self.constant(values)

    def constant(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def conv(self, x, cin, cout, size, stride=1, groups=1, pad=None, bias=False):
        pad = size // 2 if pad is None else pad
        inputs = [x, self.weight((cout, cin // groups, size, size))] + ([self.weight((cout,), 0.1)] if bias else [])
        return self.op("Conv", *inputs, kernel_shape=[size, size], strides=[stride, stride], pads=[pad] * 4,
                       group=groups)

    def norm(self, x, channels):
        ones, zeros = numpy.ones(channels, numpy.float32), numpy.zeros(channels, numpy.float32)
        return self.op("BatchNormalization", x, *[self.constant(v) for v in (ones, zeros, zeros, ones)], epsilon=1e-3)

    def conv_norm(self, x, cin, cout, size, stride=1, groups=1, relu="Relu"):
        x = self.norm(self.conv(x, cin, cout, size, stride, groups), cout)
        if relu == "Relu6":
            return self.op("Clip", x, self.constant(numpy.float32(0)), self.constant(numpy.float32(6)))
        return self.op(relu, x) if relu else x

    def dense(self, x, cin, cout):
        return self.op("Gemm", x, self.weight((cin, cout)), self.weight((cout,), 0.1))

    def classify(self, x, channels):
        return self.dense(self.op("Flatten", self.op("GlobalAveragePool", x)), channels, 1000)


def pool(b, x):
    return b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])


def lenet(b, x):
    x = pool(b, b.op("Relu", b.conv(x, 1, 6, 5, bias=True)))
    x = pool(b, b.op("Relu", b.conv(x, 6, 16, 5, pad=0, bias=True)))
    x = b.op("Flatten", x)
    for cin, cout in ((400, 120), (120, 84)):
        x = b.op("Relu", b.dense(x, cin, cout))
    return b.dense(x, 84, 10)


def mobilenet(b, x):
    x, cin = b.conv_norm(x, 3, 32, 3, 2, relu="Relu6"), 32
    for expand, cout, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                        (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            step, hidden, before = stride if i == 0 else 1, cin * expand, x
            if expand > 1:
                x = b.conv_norm(x, cin, hidden, 1, relu="Relu6")
            x = b.conv_norm(x, hidden, hidden, 3, step, hidden, "Relu6")
            x = b.conv_norm(x, hidden, cout, 1, relu=None)
            if step == 1 and cin == cout:
                x = b.op("Add", x, before)
            cin = cout
    return b.classify(b.conv_norm(x, 320, 1280, 1, relu="Relu6"), 1280)


def resnet(b, x):
    x, cin = b.conv_norm(x, 3, 64, 7, 2), 64
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            step = stride if i == 0 else 1
            y = b.conv_norm(b.conv_norm(x, cin, width, 1), width, width, 3, step)
            y = b.conv_norm(y, width, 4 * width, 1, relu=None)
            before = b.conv_norm(x, cin, 4 * width, 1, step, relu=None) if i == 0 else x
            x, cin = b.op("Relu", b.op("Add", y, before)), 4 * width
    return b.classify(x, 2048)


def lstm(b, x):
    x = b.op("Transpose", x, perm=[1, 0, 2])
    for layer in range(2):
        weights = [b.weight((1, 2048, 512)), b.weight((1, 2048, 512)), b.weight((1, 4096), 0.1)]
        all_steps, last, _ = b.op("LSTM", x, *weights, outputs=3, hidden_size=512)
        x = b.op("Squeeze", all_steps, b.constant(numpy.array([1])))
    return b.dense(b.op("Squeeze", last, b.constant(numpy.array([0]))), 512, 10)


NETWORKS = {"lenet": (lenet, (1, 28, 28)), "mobilenet": (mobilenet, (3, 224, 224)), "resnet": (resnet, (3, 224, 224)),
            "lstm": (lstm, (32, 512))}
CLASSES = {"lenet": 10, "lstm": 10}


def model(net, batch):
    """A checked ONNX model of input "x", and the shape of that."""
    make, shape = NETWORKS[net]
    shape = (batch, *shape)
    b = Builder()
    y = make(b, "x")
    graph = helper.make_graph(b.nodes, net, [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(y, TensorProto.FLOAT, (batch, CLASSES.get(net, 1000)))],
                              b.weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(made)
    return made, shape
