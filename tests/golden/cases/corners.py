# SPDX-License-Identifier: Apache-2.0
"""Batches without rows, NaN among segments, and parts of variables in a checkpoint."""
import numpy as np
from tensorflow.python.training import saver as saver_module
from tensorflow.python.training.saving import saveable_object_util

from make import golden, initializer, tf, tf1


@golden()
def no_rows(case):
    """A batch of none through what makes shapes and means of it."""
    x = case.feed("x", case.floats(0, 5, 4), (None, None, 4))
    images = case.feed("images", case.floats(0, 3, 3, 2), (None, 3, 3, 2))
    with tf1.variable_scope("net", initializer=initializer):
        outputs, state = tf1.nn.dynamic_rnn(tf1.nn.rnn_cell.GRUCell(2), x, tf.zeros((0,), tf.int32), dtype=tf.float32)
    loss = tf.reduce_sum(outputs) + tf.reduce_sum(state)
    case.fetch(outputs, state, loss, *tf.gradients(loss, [x] + tf1.trainable_variables()))
    case.fetch(*tf1.nn.fused_batch_norm(images, [1.0, 1.0], [0.0, 0.5], is_training=True))
    case.fetch(tf1.decode_raw(tf.zeros((0,), tf.string), tf.int16))


@golden()
def segments_with_nan(case):
    """Of the largest and the smallest, NaN comes through where it is the last. (Where ids are sorted TensorFlow leaves it
    out of columns that it takes eight at a time.)"""
    x = case.feed("x", np.float32([[np.nan] * 9, [-np.inf] * 9, [1] * 9, [np.nan] * 9, [np.nan] * 9, [2] * 9, [np.nan] * 9]))
    ids = [0, 0, 1, 1, 2, 2, 3]
    case.fetch(*[f(x[:, :3], ids) for f in (tf.math.segment_max, tf.math.segment_min)],
               *[f(x, ids[::-1], 6) for f in (tf.math.unsorted_segment_max, tf.math.unsorted_segment_min)])


@golden(steps=2)
def saved_parts(case):
    """The graph that tf.compat.v1.train.Saver writes for a variable in parts, which it reads without copies."""
    folder = case.directory("folder")
    parts = tf1.get_variable("v", (5, 2), initializer=initializer, partitioner=tf1.fixed_size_partitioner(2), use_resource=True)
    builder = saver_module.BulkSaverBuilder()
    saveables = saveable_object_util.validate_and_slice_inputs({"v": parts})
    prefix = tf.strings.join([folder, "/model"])
    with tf1.control_dependencies([builder._AddShardedSaveOpsForV2(prefix, [("/cpu:0", saveables)])]):
        restored = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["v", "v"], shape_and_slices=["", "5 2 2,2:0,2"],
                                        dtypes=[tf.float32, tf.float32])
    case.fetch(*restored)
    case.target(*[o for o in tf1.get_default_graph().get_operations() if o.type == "DisableCopyOnRead"])
    with tf1.control_dependencies(restored):
        case.target(*[part.assign_add(part + 1.0) for part in parts])


@golden(tolerance=1e-4)
def ctc_dense(case):
    """The loss of tf.compat.v1.nn.ctc_loss_v2 by its own steps, for labels as a matrix."""
    logits = case.feed("logits", case.floats(6, 3, 5, low=-2, high=2), (None, None, 5))
    labels, lengths = case.feed("labels", np.int32([[1, 2, 2], [3, 0, 0], [4, 1, 0]])), np.int32([3, 1, 2])
    losses = [tf1.nn.ctc_loss_v2(labels, logits, lengths, np.int32([6, 4, 5]), blank_index=0),
              tf1.nn.ctc_loss_v2(labels, tf.transpose(logits, (1, 0, 2)), lengths, np.int32([6, 4, 5]), blank_index=0,
                                 logits_time_major=False, unique=tf.nn.ctc_unique_labels(labels))]
    case.fetch_with_gradients(losses, [logits])
