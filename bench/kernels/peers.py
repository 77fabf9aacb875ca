#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rows of bench_kernels in PyTorch (channels first, as PyTorch users have them)."""
import argparse
import sys
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("threads", nargs="?", type=int, default=1)
parser.add_argument("--others", action="store_true", help="those of bench_kernels --others")
options = parser.parse_args()
threads = options.threads

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("PyTorch is not installed: skipped")

torch.set_num_threads(threads)
backward = torch.ops.aten.convolution_backward
pool_backward = torch.ops.aten.max_pool2d_with_indices_backward


def row(layer, op, call):
    best, total, n = 1e9, 0.0, 0
    while n < 3 or (total < 0.2 and n < 10000):
        begin = time.perf_counter()
        call()
        spent = time.perf_counter() - begin
        best, total, n = min(best, spent), total + spent, n + 1
    print(f"{layer:22} {op:34} {best * 1e6:10.1f}")


def dense(layer, m, k, n):
    x, w, g = torch.rand(m, k), torch.rand(k, n), torch.rand(m, n)
    row(layer, "MatMul", lambda: x @ w)
    row(layer, "MatMul", lambda: x.t() @ g)
    row(layer, "MatMul", lambda: g @ w.t())


def conv(layer, size, cin, window, cout, pad):
    x, w = torch.rand(64, cin, size, size), torch.rand(cout, cin, window, window)
    bias = torch.rand(cout)[:, None, None]
    y = F.conv2d(x, w, padding=pad)

    def back(by_input, by_filter):
        backward(y, x, w, None, [1, 1], [pad, pad], [1, 1], False, [0, 0], 1, [by_input, by_filter, False])

    row(layer, "Conv2D", lambda: F.conv2d(x, w, padding=pad))
    row(layer, "Conv2DBackpropFilter", lambda: back(False, True))
    if cin > 1:
        row(layer, "Conv2DBackpropInput", lambda: back(True, False))
    row(layer, "BiasAdd", lambda: y + bias)
    row(layer, "BiasAddGrad", lambda: y.sum((0, 2, 3)))
    p, where = F.max_pool2d(y, 2, return_indices=True)
    row(layer, "MaxPool", lambda: F.max_pool2d(y, 2, return_indices=True))
    row(layer, "MaxPoolGrad", lambda: pool_backward(p, y, [2, 2], [2, 2], [0, 0], [1, 1], False, where))


def others():
    print(f"{'size':22} {'op':34} {'us':>10}   ({threads} threads, PyTorch {torch.__version__})")
    x = torch.rand(1 << 20) - 0.5
    truth = x > 0
    row("1M", "SelectV2", lambda: torch.where(truth, x, x))
    row("1M", "LogicalAnd", lambda: torch.logical_and(truth, truth))
    row("1M", "Erfc", lambda: torch.erfc(x))
    row("1M", "Log1p", lambda: torch.log1p(x))
    images, channels, short = torch.rand(8, 224, 224, 3), torch.rand(3), torch.rand(32768, 32)
    row("8x224x224x3", "Sub", lambda: images - channels)
    row("32768x32", "Sum", lambda: short.sum(1))
    lines = torch.rand(64, 10000)
    row("64x10000", "TopKV2", lambda: torch.sort(lines, descending=True))
    for name, dtype in (("float64", torch.float64), ("int32", torch.int32), ("complex64", torch.complex64)):
        m = (torch.rand(512, 512) * 100).to(dtype)
        row(f"512x512x512 {name}", "MatMul", lambda m=m: m @ m)
    a = torch.rand(512, 512) + 100 * torch.eye(512)
    row("512x512", "MatrixSolve", lambda: torch.linalg.solve(a, a))
    frames, line = torch.rand(128, 1024), torch.rand(1 << 18, dtype=torch.complex64)
    row("128x1024", "RFFT", lambda: torch.fft.rfft(frames))
    row("262144", "FFT", lambda: torch.fft.fft(line))


if options.others:
    others()
    sys.exit()
print(f"{'layer':22} {'op':34} {'us':>10}   (batch 64, {threads} threads, PyTorch {torch.__version__})")
dense("784x512", 64, 784, 512)
dense("512x10", 64, 512, 10)
dense("400x120", 64, 400, 120)
dense("9216x128", 64, 9216, 128)
conv("1x5x5x6", 28, 1, 5, 6, 2)
conv("6x5x5x16", 14, 6, 5, 16, 0)
conv("1x3x3x32", 28, 1, 3, 32, 0)
conv("32x3x3x64", 26, 32, 3, 64, 0)
logits, labels = torch.rand(64, 10, requires_grad=True), torch.zeros(64, dtype=torch.long)
row("10 classes", "cross_entropy and its gradient",
    lambda: torch.autograd.grad(F.cross_entropy(logits, labels, reduction="sum"), logits))
