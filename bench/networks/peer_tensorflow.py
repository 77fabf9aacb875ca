# SPDX-License-Identifier: Apache-2.0
# TensorFlow's side of bench_networks: peer_tensorflow.py [NET] [MODE] [BATCH] [THREADS] [SECONDS] [--compiled] prints
# examples/s and peak MiB; compiled: by XLA. With --graph FILE it writes the network as a frozen GraphDef instead.
import os
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
from peer import arguments, memory, speed

options = arguments("Runs a network in TensorFlow; prints examples/s and the peak of memory in MiB.",
                    ["lenet", "mobilenet", "resnet", "efficientnet", "lstm", "bert", "gpt2", "gpt2_next"],
                    ["infer", "train"], graph=True)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf


WORDS, PAST = 1024, 127


class Attention(tf.keras.layers.Layer):
    """As it is written by hand in TensorFlow: products, a mask, softmax."""

    def __init__(self, causal):
        super().__init__()
        self.causal = causal
        self.parts = [tf.keras.layers.Dense(768) for _ in range(4)]

    def build(self, shape):
        for part in self.parts:
            part.build((*shape[:-1], 768))

    def call(self, x, past=None):
        batch, time = x.shape[:2]
        q, k, v = (tf.transpose(tf.reshape(part(x), (batch, time, 12, 64)), (0, 2, 1, 3)) for part in self.parts[:3])
        if past is not None:
            k, v = tf.concat((past[0], k), 2), tf.concat((past[1], v), 2)
        scores = tf.matmul(q, k, transpose_b=True) / 8.0
        if self.causal and past is None:
            scores = tf.where(tf.linalg.band_part(tf.ones((time, time), tf.bool), -1, 0), scores, -1e9)
        y = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), (0, 2, 1, 3))
        return self.parts[3](tf.reshape(y, (batch, time, 768)))


class Transformer(tf.keras.Model):
    """BERT-base, or GPT-2 small, which normalises before each half of a block."""

    def __init__(self, gpt2):
        super().__init__()
        layers = tf.keras.layers
        self.gpt2 = gpt2
        self.words, self.positions = layers.Embedding(WORDS, 768), layers.Embedding(1024 if gpt2 else 512, 768)

        def norm():
            return layers.LayerNormalization(epsilon=1e-5 if gpt2 else 1e-12)

        def gelu(x):
            return tf.nn.gelu(x, approximate=gpt2)

        self.attentions, self.norms = [Attention(gpt2) for _ in range(12)], [norm() for _ in range(25)]
        self.ups = [layers.Dense(3072, activation=gelu) for _ in range(12)]
        self.downs = [layers.Dense(768) for _ in range(12)]
        self.pooler = None if gpt2 else layers.Dense(768, activation="tanh")
        self.head = layers.Dense(WORDS, use_bias=False) if gpt2 else layers.Dense(10)

    def call(self, words, past=None, training=False):
        first = PAST if past else 0
        x = self.words(words) + self.positions(tf.range(first, first + words.shape[1]))
        if not self.gpt2:
            x = self.norms[24](x)
        for i in range(12):
            if self.gpt2:
                x += self.attentions[i](self.norms[2 * i](x), past[2 * i:2 * i + 2] if past else None)
                x += self.downs[i](self.ups[i](self.norms[2 * i + 1](x)))
            else:
                x = self.norms[2 * i](x + self.attentions[i](x))
                x = self.norms[2 * i + 1](x + self.downs[i](self.ups[i](x)))
        return self.head(tf.reshape(self.norms[24](x), (-1, 768)) if self.gpt2 else self.pooler(x[:, 0]))


def network(net):
    layers = tf.keras.layers
    if net == "efficientnet":
        return tf.keras.applications.EfficientNetB0(weights=None, classifier_activation=None)
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
    past = None
    if options.net in ("bert", "gpt2", "gpt2_next"):
        model, time = Transformer(options.net != "bert"), 1 if options.net == "gpt2_next" else 128
        x = tf.random.uniform((options.batch, time), 0, WORDS, tf.int32)
        if options.net == "gpt2_next":
            past = [tf.random.normal((options.batch, 12, PAST, 64)) for _ in range(24)]
    else:
        model = network(options.net)
        x = tf.random.uniform((options.batch, *model.input_shape[1:]))
    labels = options.batch * (128 if options.net == "gpt2" else 1)
    y = tf.random.uniform([labels], 0, 10, tf.int32)
    given = {"past": past} if past else {}

    @tf.function(jit_compile=options.compiled)
    def train():
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        for v, g in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
            v.assign_sub(0.01 * g)
        return loss

    @tf.function(jit_compile=options.compiled)
    def infer(x, **given):
        return model(x, training=False, **given)

    if options.graph:
        from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

        model(x, training=False, **given)  # makes its variables
        frozen = convert_variables_to_constants_v2(infer.get_concrete_function(x, **given))
        with open(options.graph, "wb") as file:
            file.write(frozen.graph.as_graph_def().SerializeToString())
        return
    step = train if options.mode == "train" else lambda: infer(x, **given)
    print(options.batch * speed(lambda: step().numpy(), options.seconds), memory("VmHWM"))


main()
