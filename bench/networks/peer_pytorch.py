# SPDX-License-Identifier: Apache-2.0
# PyTorch's side of bench_networks: peer_pytorch.py [NET] [MODE] [BATCH] [THREADS] [SECONDS] [--compiled] prints
# examples/s and peak MiB; compiled: by torch.compile, in inference with the weights as constants.
import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
import pytorch_networks
from peer import arguments, memory, speed

options = arguments("Runs a network in PyTorch; prints examples/s and the peak of memory in MiB.",
                    list(pytorch_networks.NETWORKS), ["infer", "train"])
import torch
import torch._inductor.config
from torch import nn


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = pytorch_networks.NETWORKS[options.net]()
    x = pytorch_networks.inputs(options.net, options.batch)
    if x[0].dim() == 4 and options.net != "lenet":
        model, x[0] = model.to(memory_format=torch.channels_last), x[0].contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (options.batch * (128 if options.net == "gpt2" else 1),))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        optimizer.zero_grad()
        loss_fn(model(*x), y).backward()
        optimizer.step()

    def infer():
        with torch.no_grad():  # which freezing asks for
            model(*x)

    if options.mode == "infer":
        model.eval()
    if options.compiled:
        torch._inductor.config.freezing = options.mode == "infer"
        model = torch.compile(model)
    step = train if options.mode == "train" else infer
    print(options.batch * speed(step, options.seconds), memory("VmHWM"))


main()
