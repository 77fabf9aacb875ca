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
from peer_networks import network


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
