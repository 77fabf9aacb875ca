# SPDX-License-Identifier: Apache-2.0
# What the peers' scripts share: their command line, and the memory of this process as they report it.
import argparse
import time


def arguments(description, nets, modes=(), graph=False, cold=False):
    """Parses NET THREADS STEPS, or where there are several modes NET MODE BATCH THREADS SECONDS; `graph`, `cold`: these
    options too."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("net", nargs="?", default=nets[0], choices=nets)
    if modes:
        parser.add_argument("mode", nargs="?", default=modes[0], choices=modes)
        parser.add_argument("batch", nargs="?", type=int, default=1)
    parser.add_argument("threads", nargs="?", type=int, default=1)
    if modes:
        parser.add_argument("seconds", nargs="?", type=float, default=3)
        parser.add_argument("--compiled", action="store_true")
        if graph:
            parser.add_argument("--graph", help="write the network to this file instead")
        if cold:
            parser.add_argument("--cold", help="read the network from this file and run it once")
    else:
        parser.add_argument("steps", nargs="?", type=int, default=200)
    return parser.parse_args()


def memory(what):
    """`what`: "VmRSS" or "VmHWM"; MiB."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(what + ":"):
                return int(line.split()[1]) / 1024
    return 0


def speed(step, seconds):
    """Calls a second, after three that are not counted."""
    for _ in range(3):
        step()
    begin, passed, steps = time.perf_counter(), 0, 0
    while passed < seconds:
        step()
        steps += 1
        passed = time.perf_counter() - begin
    return steps / passed
