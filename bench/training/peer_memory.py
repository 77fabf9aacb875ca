# SPDX-License-Identifier: Apache-2.0
# Memory of this process as the peers' scripts report it.


def memory(what):
    """`what`: "VmRSS" or "VmHWM"; MiB."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(what + ":"):
                return int(line.split()[1]) / 1024
    return 0
