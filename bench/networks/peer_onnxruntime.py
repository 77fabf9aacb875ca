# SPDX-License-Identifier: Apache-2.0
# ONNX Runtime's side of bench_networks: peer_onnxruntime.py [NET] [infer] [BATCH] [THREADS] [SECONDS] prints examples/s
# and peak MiB; with --graph FILE it writes the model there instead, and with --cold FILE prints the ms that it takes to
# read the model from there and to answer once.
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
import onnx_networks
from peer import arguments, memory, speed

options = arguments("Runs a network in ONNX Runtime; prints examples/s and the peak of memory in MiB.",
                    list(onnx_networks.NETWORKS), ["infer"], graph=True, cold=True)
import onnxruntime

settings = onnxruntime.SessionOptions()
settings.intra_op_num_threads = options.threads
settings.inter_op_num_threads = 1


def session_of(model):
    return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def main():
    if options.cold:  # without a model made here, whose memory would be used again
        values = onnx_networks.values(options.net, options.batch)
        begin = time.perf_counter()
        session_of(options.cold).run(None, values)
        print(1000 * (time.perf_counter() - begin), memory("VmHWM"))
        return
    model, values = onnx_networks.model(options.net, options.batch)
    if options.graph:
        with open(options.graph, "wb") as file:
            file.write(model.SerializeToString())
        print(0, memory("VmHWM"))
        return
    session = session_of(model.SerializeToString())
    print(options.batch * speed(lambda: session.run(None, values), options.seconds), memory("VmHWM"))


main()
