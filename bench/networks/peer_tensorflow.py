# SPDX-License-Identifier: Apache-2.0
# TensorFlow's side of bench_networks: peer_tensorflow.py [NET] [MODE] [BATCH] [THREADS] [SECONDS] [--compiled] prints
# examples/s and peak MiB; compiled: by XLA.
import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
from peer import arguments, memory, speed

options = arguments("Runs a network in TensorFlow; prints examples/s and the peak of memory in MiB.",
                    ["lenet", "mobilenet", "resnet", "lstm"], ["infer", "train"])
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf


def network(net):
    layers = tf.keras.layers
    if net == "mobilenet":
        return tf.keras.applications.MobileNetV2(weights=None, classifier_activation=None)
    if net == "resnet":
        return tf.keras.applications.ResNet50(weights=None, classifier_activation=None)
    if net == "lstm":
        return tf.keras.Sequential([layers.Input((32, 512)), layers.LSTM(512, return_sequences=True), layers.LSTM(512),
                                    layers.Dense(10)])
    return tf.keras.Sequential([
        layers.Input((28, 28, 1)), layers.Conv2D(6, 5, padding="same", activation="relu"), layers.MaxPool2D(),
        layers.Conv2D(16, 5, activation="relu"), layers.MaxPool2D(), layers.Flatten(),
        layers.Dense(120, activation="relu"), layers.Dense(84, activation="relu"), layers.Dense(10)])


def main():
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    model = network(options.net)
    x = tf.random.uniform((options.batch, *model.input_shape[1:]))
    y = tf.random.uniform([options.batch], 0, 10, tf.int32)

    @tf.function(jit_compile=options.compiled)
    def train():
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        for v, g in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
            v.assign_sub(0.01 * g)
        return loss

    @tf.function(jit_compile=options.compiled)
    def infer():
        return model(x, training=False)

    step = train if options.mode == "train" else infer
    print(options.batch * speed(lambda: step().numpy(), options.seconds), memory("VmHWM"))


main()
