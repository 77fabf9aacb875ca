# SPDX-License-Identifier: Apache-2.0
# PyTorch's side of bench_networks: peer_pytorch.py [NET] [MODE] [BATCH] [THREADS] [SECONDS] prints examples/s and
# peak MiB.
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
from peer import arguments, memory

options = arguments("Runs a network in PyTorch; prints examples/s and the peak of memory in MiB.",
                    ["lenet", "mobilenet", "resnet", "lstm"], ["infer", "train"])
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
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.LSTM(512, 512, 2, batch_first=True), nn.Linear(512, 10)

    def forward(self, x):
        return self.head(self.layers(x)[0][:, -1])


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = {"lenet": lenet, "mobilenet": mobilenet, "resnet": resnet, "lstm": Lstm}[options.net]()
    shape = {"lenet": (1, 28, 28), "lstm": (32, 512)}.get(options.net, (3, 224, 224))
    x = torch.rand(options.batch, *shape)
    if len(shape) == 3 and options.net != "lenet":
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (options.batch,))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()

    def infer():
        with torch.inference_mode():
            model(x)

    step = train if options.mode == "train" else infer
    if options.mode == "infer":
        model.eval()
    for _ in range(3):
        step()
    begin, passed, steps = time.perf_counter(), 0, 0
    while passed < options.seconds:
        step()
        steps += 1
        passed = time.perf_counter() - begin
    print(options.batch * steps / passed, memory("VmHWM"))


main()
