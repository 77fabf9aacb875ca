#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of bench_gpu_training in PyTorch on the same card; prints examples/s."""
import argparse
import os
import sys
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--net", choices=["resnet", "lstm"], default="resnet")
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
parser.add_argument("--compile", action="store_true")
options = parser.parse_args()

try:
    import torch
except ImportError:
    sys.exit("PyTorch is not installed: skipped")
if not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU: skipped")
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "networks"))
import pytorch_networks

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
torch.manual_seed(1)
if options.net == "lstm":
    model = pytorch_networks.Lstm(options.size).cuda()
    x = torch.rand(options.batch, 32, options.size, device="cuda")
else:
    model = pytorch_networks.resnet().cuda().to(memory_format=torch.channels_last)
    x = torch.rand(options.batch, 3, options.size, options.size, device="cuda")
    x = x.contiguous(memory_format=torch.channels_last)
y = torch.randint(0, 10, (options.batch,), device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
forward = torch.compile(model) if options.compile else model
narrow = options.dtype != "float32"


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=getattr(torch, options.dtype) if narrow else torch.bfloat16, enabled=narrow):
        loss = torch.nn.functional.cross_entropy(forward(x), y)
    loss.backward()
    optimizer.step()


for _ in range(20):
    step()
torch.cuda.synchronize()
begun = time.perf_counter()
for _ in range(options.steps):
    step()
torch.cuda.synchronize()
print(options.batch * options.steps / (time.perf_counter() - begun))
