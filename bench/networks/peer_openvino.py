# SPDX-License-Identifier: Apache-2.0
# OpenVINO's side of bench_networks: peer_openvino.py [NET] [infer] [BATCH] [THREADS] [SECONDS] prints examples/s and peak
# MiB.
import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
import onnx_networks
from peer import arguments, memory, speed

options = arguments("Runs a network in OpenVINO, in float32; prints examples/s and the peak of memory in MiB.",
                    list(onnx_networks.NETWORKS), ["infer"])
import io

import openvino

model, values = onnx_networks.model(options.net, options.batch)
core = openvino.Core()
settings = {"INFERENCE_NUM_THREADS": options.threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
compiled = core.compile_model(core.read_model(io.BytesIO(model.SerializeToString())), "CPU", settings)
request = compiled.create_infer_request()
for name, value in values.items():
    request.set_tensor(name, openvino.Tensor(value))
print(options.batch * speed(request.infer, options.seconds), memory("VmHWM"))
