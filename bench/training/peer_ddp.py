# SPDX-License-Identifier: Apache-2.0
# PyTorch's side of the workers' table of bench_training: peer_ddp.py [NET] [PROCESSES] [STEPS] trains the network with
# DistributedDataParallel over gloo on loopback, one thread a process, batch 64 each; prints images/s of all together.
import os
import socket
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
from peer import arguments


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def train(rank, net, processes, steps, port):
    import torch
    import torch.distributed as dist
    from torch import nn
    from peer_networks import network

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes)
    model = nn.parallel.DistributedDataParallel(network(net))
    x, y = torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()

    for _ in range(20):
        step()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    dist.barrier()
    seconds = time.perf_counter() - begin
    if rank == 0:
        print(64 * processes * steps / seconds)
    dist.destroy_process_group()


def main():
    options = arguments("Trains a network with PyTorch's DDP; THREADS is the number of processes. Prints images/s.",
                        ["mlp", "lenet", "convnet"])
    import torch.multiprocessing as mp

    mp.spawn(train, (options.net, options.threads, options.steps, free_port()), nprocs=options.threads)


if __name__ == "__main__":
    main()
