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

import pytorch_networks


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = pytorch_networks.NETWORKS[options.net]()
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
