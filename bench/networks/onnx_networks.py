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


def efficientnet(b, x):
    def swish(x):
        return b.op("Mul", x, b.op("Sigmoid", x))

    x, cin = swish(b.norm(b.conv(x, 3, 32, 3, 2), 32)), 32
    for expand, cout, count, stride, size in ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
                                              (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
        for i in range(count):
            step, hidden, before = stride if i == 0 else 1, cin * expand, x
            if expand > 1:
                x = swish(b.norm(b.conv(x, cin, hidden, 1), hidden))
            x = swish(b.norm(b.conv(x, hidden, hidden, size, step, hidden), hidden))
            y = swish(b.conv(b.op("GlobalAveragePool", x), hidden, max(1, cin // 4), 1, bias=True))
            x = b.op("Mul", x, b.op("Sigmoid", b.conv(y, max(1, cin // 4), hidden, 1, bias=True)))
            x = b.norm(b.conv(x, hidden, cout, 1), cout)
            if step == 1 and cin == cout:
                x = b.op("Add", x, before)
            cin = cout
    return b.classify(swish(b.norm(b.conv(x, 320, 1280, 1), 1280)), 1280)


# -- transformers, as PyTorch's exporter writes them


def ints(b, *values):
    return b.constant(numpy.array(values, numpy.int64))


def number(b, value):
    return b.constant(numpy.float32(value))


def linear(b, x, cin, cout, bias=True):
    y = b.op("MatMul", x, b.weight((cin, cout), 0.02))
    return b.op("Add", y, b.weight((cout,), 0.1)) if bias else y


def layer_norm(b, x, epsilon):
    ones, zeros = numpy.ones(768, numpy.float32), numpy.zeros(768, numpy.float32)
    return b.op("LayerNormalization", x, b.constant(ones), b.constant(zeros), axis=-1, epsilon=epsilon)


def gelu(b, x, approximate):
    if approximate:
        cube = b.op("Mul", b.op("Pow", x, number(b, 3)), number(b, 0.044715))
        curve = b.op("Tanh", b.op("Mul", b.op("Add", x, cube), number(b, (2 / numpy.pi) ** 0.5)))
        return b.op("Mul", b.op("Mul", x, number(b, 0.5)), b.op("Add", curve, number(b, 1)))
    curve = b.op("Erf", b.op("Div", x, number(b, 2 ** 0.5)))
    return b.op("Mul", b.op("Mul", x, b.op("Add", curve, number(b, 1))), number(b, 0.5))


def attention(b, x, batch, time, mask=None, past=None):
    def heads(perm):
        y = b.op("Reshape", linear(b, x, 768, 768), ints(b, batch, time, 12, 64))
        return b.op("Transpose", y, perm=perm)

    q = heads([0, 2, 1, 3])
    if past:
        k = b.op("Concat", past[0], heads([0, 2, 1, 3]), axis=2)
        k, v = b.op("Transpose", k, perm=[0, 1, 3, 2]), b.op("Concat", past[1], heads([0, 2, 1, 3]), axis=2)
    else:
        k, v = heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scores = b.op("Div", b.op("MatMul", q, k), number(b, 8))
    if mask is not None:
        scores = b.op("Where", mask, scores, number(b, numpy.finfo(numpy.float32).min))
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    y = b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), ints(b, batch, time, 768))
    return linear(b, y, 768, 768)


def embedded(b, x, time):
    y = b.op("Gather", b.weight((WORDS, 768), 0.02), x, axis=0)
    return b.op("Add", y, b.weight((1, time, 768), 0.02))


def feed_forward(b, x, approximate):
    return linear(b, gelu(b, linear(b, x, 768, 3072), approximate), 3072, 768)


def bert(b, x, batch):
    x = layer_norm(b, embedded(b, x, 128), 1e-12)
    for _ in range(12):
        x = layer_norm(b, b.op("Add", attention(b, x, batch, 128), x), 1e-12)
        x = layer_norm(b, b.op("Add", feed_forward(b, x, False), x), 1e-12)
    first = b.op("Gather", x, b.constant(numpy.array(0)), axis=1)
    return linear(b, b.op("Tanh", linear(b, first, 768, 768)), 768, 10)


def gpt2(b, x, batch, time=128, past=None):
    mask = None if past else b.constant(numpy.tri(time, dtype=bool))
    x = embedded(b, x, time)
    for i in range(12):
        y = attention(b, layer_norm(b, x, 1e-5), batch, time, mask, past and past[2 * i:2 * i + 2])
        x = b.op("Add", y, x)
        x = b.op("Add", feed_forward(b, layer_norm(b, x, 1e-5), True), x)
    x = b.op("Reshape", layer_norm(b, x, 1e-5), ints(b, -1, 768))
    return linear(b, x, 768, WORDS, bias=False)


def lstm(b, x):
    x = b.op("Transpose", x, perm=[1, 0, 2])
    for layer in range(2):
        weights = [b.weight((1, 2048, 512)), b.weight((1, 2048, 512)), b.weight((1, 4096), 0.1)]
        all_steps, last, _ = b.op("LSTM", x, *weights, outputs=3, hidden_size=512)
        x = b.op("Squeeze", all_steps, b.constant(numpy.array([1])))
    return b.dense(b.op("Squeeze", last, b.constant(numpy.array([0]))), 512, 10)


WORDS, PAST = 1024, 127
NETWORKS = {"lenet": (lenet, (1, 28, 28)), "mobilenet": (mobilenet, (3, 224, 224)), "resnet": (resnet, (3, 224, 224)),
            "efficientnet": (efficientnet, (3, 224, 224)), "lstm": (lstm, (32, 512)), "bert": (bert, (128,)),
            "gpt2": (gpt2, (128,)), "gpt2_next": (gpt2, (1,))}
CLASSES = {"lenet": 10, "lstm": 10, "bert": 10}


def values(net, batch):
    """A value for each input of a network, by name."""
    make, shape = NETWORKS[net]
    random = numpy.random.default_rng(1)
    if shape not in ((128,), (1,)):
        return {"x": random.random((batch, *shape), numpy.float32)}
    past = [f"past{i}" for i in range(24)] if net == "gpt2_next" else []
    return {"x": random.integers(0, WORDS, (batch, *shape), numpy.int64),
            **{name: random.standard_normal((batch, 12, PAST, 64), numpy.float32) for name in past}}


def model(net, batch):
    """A checked ONNX model, and a value for each of its inputs by name."""
    make, shape = NETWORKS[net]
    b, given = Builder(), values(net, batch)
    if shape in ((128,), (1,)):
        past = [name for name in given if name != "x"]
        y = make(b, "x", batch, 1, past) if past else make(b, "x", batch)
        result = (batch * shape[0], WORDS) if make == gpt2 else (batch, CLASSES[net])
    else:
        y, result = make(b, "x"), (batch, CLASSES.get(net, 1000))
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
              for name, v in given.items()]
    graph = helper.make_graph(b.nodes, net, inputs, [helper.make_tensor_value_info(y, TensorProto.FLOAT, result)],
                              b.weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(made)
    return made, given
