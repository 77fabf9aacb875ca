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


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


NETWORKS = {"lenet": lenet, "mobilenet": mobilenet, "resnet": resnet, "lstm": Lstm}
