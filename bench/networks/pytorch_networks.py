# SPDX-License-Identifier: Apache-2.0
# The networks of bench/networks/networks.h in PyTorch.
import torch
from torch import nn


def conv_norm(cin, cout, size, stride=1, groups=1, relu=nn.ReLU):
    layers = [nn.Conv2d(cin, cout, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(cout)]
    return nn.Sequential(*layers, *([relu()] if relu else []))


class Residual(nn.Module):
    def __init__(self, body, shortcut=None, relu=True):
        super().__init__()
        self.body, self.shortcut, self.relu = body, shortcut or nn.Identity(), relu

    def forward(self, x):
        y = self.body(x) + self.shortcut(x)
        return torch.relu(y) if self.relu else y


def mobilenet():
    layers, cin = [conv_norm(3, 32, 3, 2, relu=nn.ReLU6)], 32
    for expand, cout, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                        (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            step, hidden = stride if i == 0 else 1, cin * expand
            body = [conv_norm(cin, hidden, 1, relu=nn.ReLU6)] if expand > 1 else []
            body += [conv_norm(hidden, hidden, 3, step, hidden, nn.ReLU6), conv_norm(hidden, cout, 1, relu=None)]
            body = nn.Sequential(*body)
            layers.append(Residual(body, relu=False) if step == 1 and cin == cout else body)
            cin = cout
    return nn.Sequential(*layers, conv_norm(320, 1280, 1, relu=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(1280, 1000))


def resnet():
    layers, cin = [conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            step = stride if i == 0 else 1
            body = nn.Sequential(conv_norm(cin, width, 1), conv_norm(width, width, 3, step),
                                 conv_norm(width, 4 * width, 1, relu=None))
            layers.append(Residual(body, conv_norm(cin, 4 * width, 1, step, relu=None) if i == 0 else None))
            cin = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Lstm(nn.Module):
    def __init__(self, units=512):
        super().__init__()
        self.layers, self.head = nn.LSTM(units, units, 2, batch_first=True), nn.Linear(units, 10)

    def forward(self, x):
        return self.head(self.layers(x)[0][:, -1])


class Excited(nn.Module):
    """The depthwise half of an EfficientNet's block: convolution, squeeze and excitation."""

    def __init__(self, hidden, squeezed, size, stride):
        super().__init__()
        self.conv = conv_norm(hidden, hidden, size, stride, hidden, nn.SiLU)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(hidden, squeezed, 1), nn.SiLU(),
                                  nn.Conv2d(squeezed, hidden, 1), nn.Sigmoid())

    def forward(self, x):
        x = self.conv(x)
        return x * self.gate(x)


def efficientnet():
    layers, cin = [conv_norm(3, 32, 3, 2, relu=nn.SiLU)], 32
    for expand, cout, count, stride, size in ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
                                              (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
        for i in range(count):
            step, hidden = stride if i == 0 else 1, cin * expand
            body = [conv_norm(cin, hidden, 1, relu=nn.SiLU)] if expand > 1 else []
            body = nn.Sequential(*body, Excited(hidden, max(1, cin // 4), size, step),
                                 conv_norm(hidden, cout, 1, relu=None))
            layers.append(Residual(body, relu=False) if step == 1 and cin == cout else body)
            cin = cout
    return nn.Sequential(*layers, conv_norm(320, 1280, 1, relu=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(1280, 1000))


WORDS, PAST = 1024, 127


class Attention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.causal = causal
        self.query, self.key, self.value, self.output = (nn.Linear(768, 768) for _ in range(4))

    def forward(self, x, past=None):
        q, k, v = (f(x).unflatten(-1, (12, 64)).transpose(1, 2) for f in (self.query, self.key, self.value))
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        causal = self.causal and past is None
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.output(y.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """BERT-base, or GPT-2 small, which normalises before each half of a block."""

    def __init__(self, gpt2):
        super().__init__()
        self.gpt2 = gpt2
        self.words, self.positions = nn.Embedding(WORDS, 768), nn.Embedding(1024 if gpt2 else 512, 768)
        gelu = nn.GELU("tanh" if gpt2 else "none")
        epsilon = 1e-5 if gpt2 else 1e-12
        self.blocks = nn.ModuleList(
            nn.ModuleList([Attention(gpt2), nn.LayerNorm(768, epsilon),
                           nn.Sequential(nn.Linear(768, 3072), gelu, nn.Linear(3072, 768)),
                           nn.LayerNorm(768, epsilon)]) for _ in range(12))
        self.norm = nn.LayerNorm(768, epsilon)
        self.head = (nn.Linear(768, WORDS, bias=False) if gpt2 else
                     nn.Sequential(nn.Linear(768, 768), nn.Tanh(), nn.Linear(768, 10)))

    def forward(self, words, *past):
        first = PAST if past else 0
        x = self.words(words) + self.positions.weight[first:first + words.shape[1]]
        if not self.gpt2:
            x = self.norm(x)
        for i, (attention, norm, feed_forward, norm_2) in enumerate(self.blocks):
            if self.gpt2:
                x = x + attention(norm(x), past[2 * i:2 * i + 2] or None)
                x = x + feed_forward(norm_2(x))
            else:
                x = norm(x + attention(x))
                x = norm_2(x + feed_forward(x))
        return self.head(self.norm(x).flatten(0, 1) if self.gpt2 else x[:, 0])


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


NETWORKS = {"lenet": lenet, "mobilenet": mobilenet, "resnet": resnet, "efficientnet": efficientnet, "lstm": Lstm,
            "bert": lambda: Transformer(False), "gpt2": lambda: Transformer(True),
            "gpt2_next": lambda: Transformer(True)}


def inputs(net, batch):
    if net in ("bert", "gpt2"):
        return [torch.randint(0, WORDS, (batch, 128))]
    if net == "gpt2_next":
        return [torch.randint(0, WORDS, (batch, 1)), *(torch.rand(batch, 12, PAST, 64) for _ in range(24))]
    return [torch.rand(batch, *{"lenet": (1, 28, 28), "lstm": (32, 512)}.get(net, (3, 224, 224)))]
