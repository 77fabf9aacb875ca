# SPDX-License-Identifier: Apache-2.0
"""Batches without rows, NaN and infinities, and parts of variables in a checkpoint."""
import numpy as np
from tensorflow.python.training import saver as saver_module
from tensorflow.python.training.saving import saveable_object_util

from make import golden, initializer, tf, tf1

R = tf.raw_ops


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


@golden(tolerance=1e-5)
def infinities(case):
    """Every pair of zeros, infinities, NaN and some numbers through the gradients of activations; the same through running
    totals, as the channels of pixels and among the pixels of images."""
    ends = np.float32([0.0, -0.0, 1, -1, 1.5, 0.5, 7, np.inf, -np.inf, np.nan])
    n = len(ends)
    g, y = case.feed("g", np.repeat(ends[:, None], n, 1)), case.feed("y", np.repeat(ends[None], n, 0))
    case.fetch(*[getattr(R, op)(gradients=g, features=y) for op in ("ReluGrad", "Relu6Grad", "LeakyReluGrad", "SoftplusGrad", "SoftsignGrad")],
               *[getattr(R, op)(gradients=g, outputs=y) for op in ("EluGrad", "SeluGrad")],
               *[getattr(R, op)(y=y, dy=g) for op in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad")])
    rows = case.feed("rows", np.float32([np.roll(ends, 3 * i + i * i) for i in range(n)]))
    case.fetch(*[R.CumulativeLogsumexp(x=rows, axis=axis, exclusive=exclusive, reverse=reverse)
                 for axis in (0, 1) for exclusive in (False, True) for reverse in (False, True)],
               R.Cumsum(x=rows, axis=0), R.Cumprod(x=rows, axis=1), R.LogSoftmax(logits=rows))
    channels = np.float32([0, 1, np.inf, -np.inf, np.nan])
    case.fetch(R.RGBToHSV(images=case.feed("pixels", np.float32([(a, b, c) for a in channels for b in channels for c in channels]))))
    pixels = np.float32(np.reshape(np.arange(90) % 7, (2, 3, 3, 5)))
    for i, v in enumerate([np.inf, -np.inf, np.nan]):
        pixels[i % 2, i, 1, 2 * i] = v
    images = case.feed("images", pixels)
    for size in ((3, 3), (5, 3), (2, 7)):
        case.fetch(*[R.ResizeBilinear(images=images, size=size, align_corners=align) for align in (False, True)])
    normal = R.LRN(input=images, depth_radius=1, beta=1)
    case.fetch(normal, R.LRNGrad(input_grads=tf.ones_like(images), input_image=images, output_image=normal, depth_radius=1, beta=1))
    parts = case.feed("parts", np.complex64([complex(a, b) for a in ends[4:] for b in ends[4:]]))
    case.fetch(parts[:, None] * parts, R.Square(x=parts), R.Reciprocal(x=parts), R.MulNoNan(x=parts, y=parts[::-1]))
