#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows of bench_gpu in PyTorch on the same card: microseconds of a product of bfloat16 matrices, and of a small kernel."""
import argparse
import statistics
import sys
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--size", type=int, default=8192)
parser.add_argument("--kernels", type=int, default=10000)
parser.add_argument("--repeats", type=int, default=5)
options = parser.parse_args()

try:
    import torch
except ImportError:
    sys.exit("PyTorch is not installed: skipped")
if not torch.cuda.is_available():
    sys.exit("PyTorch sees no GPU: skipped")

PRODUCTS = 10


def median_us(call):
    times = []
    for i in range(options.repeats + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if i > 0:
            times.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(times)


weight = torch.full((options.size, options.size), 1 / options.size, dtype=torch.bfloat16, device="cuda")


def products():
    x = weight
    for _ in range(PRODUCTS):
        x = x @ weight


def small():
    x = torch.ones(16, device="cuda")
    for _ in range(options.kernels):
        x = torch.neg(x)


with torch.no_grad():
    print(median_us(products) / PRODUCTS)
    print(median_us(small) / options.kernels)
