# SPDX-License-Identifier: Apache-2.0
# ONNX Runtime's side of bench_networks: peer_onnxruntime.py [NET] [infer] [BATCH] [THREADS] [SECONDS] prints examples/s
# and peak MiB.
import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
import onnx_networks
from peer import arguments, memory, speed

options = arguments("Runs a network in ONNX Runtime; prints examples/s and the peak of memory in MiB.",
                    list(onnx_networks.NETWORKS), ["infer"])
import onnxruntime

model, values = onnx_networks.model(options.net, options.batch)
settings = onnxruntime.SessionOptions()
settings.intra_op_num_threads = options.threads
settings.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
print(options.batch * speed(lambda: session.run(None, values), options.seconds), memory("VmHWM"))
