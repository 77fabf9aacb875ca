# SPDX-License-Identifier: Apache-2.0
# PyTorch's side of bench_training: peer_pytorch.py [NET] [THREADS] [STEPS] prints images/s and resident MiB.
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
from peer import arguments, memory

options = arguments("Trains a network in PyTorch; prints images/s and MiB: after 100 steps, at the end, at most.",
                    ["mlp", "lenet", "convnet"])
import torch
from torch import nn


def network(net):
    if net == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    if net == "lenet":
        return nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))


def main():
    net, threads, steps = options.net, options.threads, options.steps
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = network(net)
    x, y = torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()

    for _ in range(20):
        step()
    at_100 = 0
    begin = time.perf_counter()
    for i in range(steps):
        step()
        if i == 99:
            at_100 = memory("VmRSS")
    seconds = time.perf_counter() - begin
    print(64 * steps / seconds, at_100, memory("VmRSS"), memory("VmHWM"))


main()
