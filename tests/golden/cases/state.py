# SPDX-License-Identifier: Apache-2.0
"""Embeddings with sparse gradients, variables that are read and written in order, queues."""
import numpy as np

from make import golden, tf, tf1
from optimizers import OPTIMIZERS


@golden("embedding_optimizers", steps=4, resource=True)
@golden("embedding_optimizers_ref", steps=4, resource=False)
def embedding(case, resource):
    """Rows of a table, some of them twice."""
    words = case.feed("words", [[1, 4, 1], [0, 6, 4]], (None, 3))
    wanted = case.feed("wanted", case.floats(2, 3, 3), (None, 3, 3))
    for name, optimizer in OPTIMIZERS.items():
        with tf1.variable_scope(name):
            table = case.variable("table", 7, 3, scale=1, resource=resource)
            step = tf1.get_variable("step", initializer=np.int64(0), use_resource=resource, trainable=False)
            loss = tf.nn.l2_loss(tf.nn.embedding_lookup(table, words) - wanted)
            case.fetch_after(optimizer(step).minimize(loss, global_step=step, var_list=[table]), table)


def look(value):
    """The value of a variable as it is now: what tf.identity gives of a reference may still change."""
    return tf.negative(value)


@golden("assign", steps=3, resource=True)
@golden("assign_ref", steps=3, resource=False)
def assign(case, resource):
    """Each read sees what ran before it."""
    x = case.feed("x", np.float32([1, 2, 3]))
    v = case.variable("v", 3, value=1, resource=resource)
    before = look(v.read_value())
    with tf1.control_dependencies([before]):
        doubled = tf1.assign(v, v.read_value() * 2, name="doubled")
    with tf1.control_dependencies([doubled]):
        then = look(v.read_value())
    with tf1.control_dependencies([then]):
        more = tf1.assign_add(v, x)
    with tf1.control_dependencies([more]):
        less = tf1.assign_sub(v, x * x / 4)
    case.fetch(before, then)
    case.fetch_after(less, v)


@golden("scatter", steps=2, resource=True)
@golden("scatter_ref", steps=2, resource=False)
def scatter(case, resource):
    """Every update of rows and of elements, one after the other."""
    values = lambda seed, low=0.5: case.floats(3, 4, low=low, high=2, seed=seed)  # noqa: E731
    v = case.variable("v", 6, 4, scale=1, resource=resource)
    rows = case.feed("rows", np.int32([4, 1, 4]), (None,))
    kinds = (tf1.scatter_update, tf1.scatter_add, tf1.scatter_sub, tf1.scatter_mul, tf1.scatter_div, tf1.scatter_min,
             tf1.scatter_max)
    seen = tf1.no_op()

    def apply(kind, *arguments):
        nonlocal seen
        with tf1.control_dependencies([seen]):
            seen = look(kind(v, *arguments))
        case.fetch(seen)

    for i, kind in enumerate(kinds):
        n = 2 if kind == tf1.scatter_update else 3  # of rows given twice any may win
        apply(kind, rows[:n], values(i)[:n])
    elements = tf.constant([[0, 1], [5, 3], [0, 2]])
    for kind in (tf1.scatter_nd_update, tf1.scatter_nd_add, tf1.scatter_nd_sub):
        apply(kind, elements, case.floats(3, seed=9))


@golden(steps=3)
def fifo_queue(case):
    x = case.feed("x", case.floats(4, 3))
    n = case.feed("n", np.int32([1, 2, 3, 4]))
    queue = tf1.FIFOQueue(20, [tf.float32, tf.int32], [(3,), ()], name="queue")
    with tf1.control_dependencies([queue.enqueue_many([x, n])]):
        enqueued = queue.enqueue([x[1] + 1, 9])
    with tf1.control_dependencies([enqueued]):
        size = queue.size()
    with tf1.control_dependencies([size]):
        first, number = queue.dequeue()
    with tf1.control_dependencies([first]):
        many, numbers = queue.dequeue_many(3)
    case.fetch(size, first, number, many, numbers)
