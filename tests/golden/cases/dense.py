# SPDX-License-Identifier: Apache-2.0
"""A dense layer trained by each of TensorFlow's optimizers, with variables of both kinds."""
import numpy as np

from make import golden, tf, tf1
from optimizers import OPTIMIZERS


@golden("dense_optimizers", steps=5, tolerance=1e-4, resource=True)
@golden("dense_optimizers_ref", steps=5, tolerance=1e-4, resource=False)
def dense(case, resource):
    x = case.feed("x", case.floats(16, 8), (None, 8))
    labels = case.feed("labels", case.ints(16, high=4), (None,))
    for name, optimizer in OPTIMIZERS.items():
        with tf1.variable_scope(name):
            w = case.variable("w", 8, 4, resource=resource)
            b = case.variable("b", 4, value=0.1, resource=resource)
            step = tf1.get_variable("step", initializer=np.int64(0), use_resource=resource, trainable=False)
            logits = tf.matmul(x, w) + b
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
            train = optimizer(step).minimize(loss, global_step=step, var_list=[w, b])
            case.fetch(loss)
            case.fetch_after(train, b, step)
