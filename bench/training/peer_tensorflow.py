# SPDX-License-Identifier: Apache-2.0
# TensorFlow's side of bench_training: peer_tensorflow.py [NET] [THREADS] [STEPS] prints images/s and resident MiB.
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
from peer import arguments, memory

options = arguments("Trains a network in TensorFlow; prints images/s and MiB: after 100 steps, at the end, at most.",
                    ["mlp", "lenet", "convnet"])
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf


def variables_and_model(net):
    init = tf.keras.initializers.GlorotUniform(1)
    made = []

    def var(*shape):
        made.append(tf.Variable(init(shape) if len(shape) > 1 else tf.zeros(shape)))
        return made[-1]

    def conv(cin, cout, k, padding):
        w, b = var(k, k, cin, cout), var(cout)
        return lambda h: tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(h, w, 1, padding), b))

    def dense(n, m, relu=True):
        w, b = var(n, m), var(m)
        return lambda h: (tf.nn.relu if relu else tf.identity)(tf.nn.bias_add(tf.matmul(h, w), b))

    pool = lambda h: tf.nn.max_pool2d(h, 2, 2, "VALID")
    flat = lambda h: tf.reshape(h, [64, -1])
    layers = {
        "mlp": lambda: [flat, dense(784, 512), dense(512, 10, False)],
        "lenet": lambda: [conv(1, 6, 5, "SAME"), pool, conv(6, 16, 5, "VALID"), pool, flat, dense(400, 120),
                          dense(120, 84), dense(84, 10, False)],
        "convnet": lambda: [conv(1, 32, 3, "VALID"), conv(32, 64, 3, "VALID"), pool, flat, dense(9216, 128),
                            dense(128, 10, False)],
    }[net]()

    def model(h):
        for layer in layers:
            h = layer(h)
        return h

    return made, model


def main():
    net, threads, steps = options.net, options.threads, options.steps
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    variables, model = variables_and_model(net)
    x = tf.random.uniform([64, 28, 28, 1])
    y = tf.random.uniform([64], 0, 10, tf.int32)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(x)))
        for v, g in zip(variables, tape.gradient(loss, variables)):
            v.assign_sub(0.01 * g)
        return loss

    for _ in range(20):
        step()
    at_100 = 0
    begin = time.perf_counter()
    for i in range(steps):
        step()
        if i == 99:
            at_100 = memory("VmRSS")
    seconds = time.perf_counter() - begin
    print(64 * steps / seconds, at_100, memory("VmRSS"), memory("VmHWM"))


main()
