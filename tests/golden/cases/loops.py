# SPDX-License-Identifier: Apache-2.0
"""Branches and loops with their gradients, as TensorFlow 1 writes them (Switch, Merge, frames, stacks, tensor arrays)
and as TensorFlow 2 does (functions, lists)."""
import numpy as np

from make import golden, tf, tf1


def control_flow(v2):
    (tf1.enable_control_flow_v2 if v2 else tf1.disable_control_flow_v2)()


@golden("branches_in_loop_v1", v2=False)
@golden("branches_in_loop_v2", v2=True)
def branches_in_loop(case, v2):
    """In each iteration one of two branches, and the gradient through the ones taken."""
    control_flow(v2)
    x, w = case.feed("x", np.float32(1.3)), case.feed("w", np.float32(0.9))
    _, y = tf.while_loop(lambda i, y: i < 6,
                         lambda i, y: (i + 1, tf.cond(y > 1.1, lambda: tf.sin(y) * w, lambda: y * y * w + 1.0)), [0, x])
    case.fetch(y, *tf.gradients(y, [x, w]))


@golden("loop_in_loop_v1", v2=False)
@golden("loop_in_loop_v2", v2=True)
def loop_in_loop(case, v2):
    control_flow(v2)
    x, w = case.feed("x", case.floats(3)), case.feed("w", case.floats(3, seed=2))

    def outer(i, y):
        _, z = tf.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, tf.tanh(z * w)), [0, y])
        return i + 1, z + x

    _, y = tf.while_loop(lambda i, y: i < 4, outer, [0, x])
    case.fetch(y, *tf.gradients(y, [x, w]))


@golden("dead_values_in_loops_yes", which=True)
@golden("dead_values_in_loops_no", which=False)
def dead_values_in_loops(case, which):
    """Loops that begin with, wait for or use what may be dead, while their counters live."""
    control_flow(False)
    x, p = case.feed("x", np.float32(1.3)), case.feed("p", np.bool_(which))
    no, yes = (tf.identity(side) for side in tf.raw_ops.Switch(data=x, pred=p))

    def loop(times, init, more=1.0):
        return tf.while_loop(lambda i, y: i < times, lambda i, y: (i + 1, y * 1.5 + more), [0, init])[1]

    first = loop(3, yes)
    with tf.control_dependencies([first]):
        second = loop(2, x)
    used = loop(3, x, yes)
    nested = tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, loop(2, y)), [0, yes])[1]
    for y in (first, second, used, nested):
        case.fetch(tf.raw_ops.Merge(inputs=[tf.sin(no), y])[0])
    for y in (first, nested):
        case.fetch(*tf.gradients(tf.raw_ops.Merge(inputs=[tf.sin(no), y])[0], x))


@golden("lstm_v1", v2=False, tolerance=1e-4)
@golden("lstm_v2", v2=True, tolerance=1e-4)
def lstm(case, v2):
    """A cell written out, over a tensor array."""
    control_flow(v2)
    x, w = case.feed("x", case.floats(2, 3, 4), (None, None, 4)), case.feed("w", case.floats(9, 20))
    steps = tf.shape(x)[1]
    rows = tf1.TensorArray(tf.float32, steps).unstack(tf.transpose(x, [1, 0, 2]))

    def body(t, c, h, out):
        i, f, o, g = tf.split(tf.matmul(tf.concat([rows.read(t), h], 1), w), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
        return t + 1, c, h, out.write(t, h)

    zeros = tf.zeros([tf.shape(x)[0], 5])
    out = tf1.TensorArray(tf.float32, steps)
    _, _, _, out = tf.while_loop(lambda t, *_: t < steps, body, [0, zeros, zeros, out])
    y = out.stack()
    loss = tf.reduce_sum(y * y)
    case.fetch(y, loss, *tf.gradients(loss, [x, w]))


@golden("map_and_scan_v1", v2=False)
@golden("map_and_scan_v2", v2=True)
def map_and_scan(case, v2):
    control_flow(v2)
    x = case.feed("x", case.floats(4, 2), (None, 2))
    y = tf.map_fn(lambda row: tf.reduce_sum(row) * row, x)
    z = tf.scan(lambda state, row: state * 0.5 + row, x)
    case.fetch(y, z, *tf.gradients([tf.reduce_sum(y * y), tf.reduce_sum(z * z)], [x]))


@golden("case_v1", v2=False)
@golden("case_v2", v2=True)
def switch_case(case, v2):
    control_flow(v2)
    i, x = case.feed("i", np.int32(2)), case.feed("x", case.floats(3, low=0.5))
    branches = [lambda: x * 2.0, lambda: tf.exp(x), lambda: tf.sqrt(x)]
    for at in range(4):
        y = tf.switch_case(i - at, branches)
        case.fetch(y, *tf.gradients(y, [x]))


@golden()
def functions_in_loops(case):
    """Functions with constants of their own, called within the bodies of loops and within one another."""
    control_flow(v2=True)
    x = case.feed("x", case.floats(3))

    @tf.function
    def shifted(y):
        return tf.concat([y[1:], [1.5]], 0)

    @tf.function
    def twice(y):
        return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, shifted(y) * 0.5), [0, y])[1]

    def body(i, y):
        return i + 1, tf.cond(i > 0, lambda: shifted(y) * x, lambda: twice(y)) + tf.gather(shifted(x), i)

    _, y = tf.while_loop(lambda i, y: i < 3, body, [0, x])
    case.fetch(y, *tf.gradients(y, x))
