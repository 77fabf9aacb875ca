# SPDX-License-Identifier: Apache-2.0
"""Elements as totals, sets, parts and counts; sparse tensors."""
import numpy as np

from make import golden, tf, tf1


@golden()
def totals(case):
    """Running sums, products and logarithms of sums."""
    x = case.feed("x", case.floats(3, 4, low=0.3), (None, 4))
    results = []
    for f in (tf.cumsum, tf.math.cumprod, tf.math.cumulative_logsumexp):
        results += [f(x, axis=axis, exclusive=exclusive, reverse=reverse) for axis, exclusive, reverse in
                    ((0, False, False), (1, False, True), (-1, True, True))]
    case.fetch(*results)
    finite = [tf.where(tf.math.is_finite(r), r, tf.zeros_like(r)) for r in results]
    case.fetch(*tf.gradients([tf.reduce_sum(f * f) for f in finite], x))


@golden()
def sets(case):
    x = case.feed("x", np.int64([3, 1, 3, 7, 1, 2]), (None,))
    y = case.feed("y", np.int64([1, 9, 2]), (None,))
    case.fetch(*tf.unique(x), *tf.unique_with_counts(x, tf.int64), *tf1.setdiff1d(x, y))
    rows = case.feed("rows", np.float32([[1, 2], [0, 5], [1, 2]]), (None, 2))
    case.fetch(*tf.raw_ops.UniqueV2(x=rows, axis=[0]), *tf.raw_ops.UniqueWithCountsV2(x=rows, axis=[1]))
    dense, others = tf.reshape(x, (2, 3)), tf.constant([[3, 3], [2, 8]], tf.int64)
    for operation in (tf.sets.intersection, tf.sets.union, tf.sets.difference):
        both = operation(dense, others)
        case.fetch(both.indices, both.values, both.dense_shape, tf.sets.size(both))
        mixed = operation(dense, tf.sparse.from_dense(others))
        case.fetch(mixed.values, operation(tf.sparse.from_dense(dense), tf.sparse.from_dense(others)).values)
    small = tf.cast(x, tf.int32)
    empty = tf.zeros([0], tf.float32)
    case.fetch(tf.raw_ops.Bincount(arr=small, size=5, weights=empty),
               tf.raw_ops.Bincount(arr=small, size=8, weights=tf.linspace(0.5, 3.0, 6)),
               tf.raw_ops.DenseBincount(input=tf.reshape(small, (2, 3)), size=8, weights=empty),
               tf.histogram_fixed_width(tf.cast(x, tf.float32), [0.0, 6.0], 4),
               tf.raw_ops.Bucketize(input=x, boundaries=[1.5, 3.0]))
    order = tf.sort(tf.reshape(x, (2, 3)))
    case.fetch(tf.searchsorted(order, tf.reshape(x, (2, 3))), tf.searchsorted(order, tf.reshape(x, (2, 3)), side="right"),
               tf.raw_ops.NthElement(input=rows, n=1), tf.raw_ops.NthElement(input=rows, n=0, reverse=True))


@golden()
def parts(case):
    """Rows dealt out and put together, slices set, and the gradients."""
    x = case.feed("x", case.floats(5, 2), (None, 2))
    to = case.feed("to", np.int32([1, 0, 2, 1, 0]), (None,))
    dealt = tf.dynamic_partition(x, to, 3)
    places = tf.dynamic_partition(tf.range(tf.shape(to)[0]), to, 3)
    back = tf.dynamic_stitch(places, [d * (i + 1.0) for i, d in enumerate(dealt)])
    parallel = tf.raw_ops.ParallelDynamicStitch(indices=places[:2], data=dealt[:2])
    part = tf.raw_ops.TensorStridedSliceUpdate(input=x, begin=[1, 0], end=[5, 1], strides=[2, 1], value=x[:2, 1:] * 3)
    wide = tf.raw_ops.TensorStridedSliceUpdate(input=x, begin=[1], end=[3], strides=[1], value=x[4] * 2)
    sum_of = tf1.accumulate_n([x, back, x * x], shape=(5, 2))
    rows = tf.raw_ops.Gather(params=x, indices=[[4, 0], [0, 2]])
    narrow = tf.raw_ops.GatherV2(params=x, indices=tf.constant([1, 1], tf.int16), axis=0)
    case.fetch_with_gradients(dealt + [back, part, wide, tf.ensure_shape(sum_of, (5, None)), rows, narrow], [x])
    case.fetch(parallel, tf1.guarantee_const(x))


@golden(tolerance=1e-4)
def sparse(case):
    """Sparse tensors made dense, filled and multiplied."""
    at = case.feed("at", np.int64([[0, 1], [2, 0], [2, 3]]), (None, 2))
    values = case.feed("values", case.floats(3), (None,))
    a = tf.SparseTensor(at, values, np.int64([4, 4]))
    dense = tf1.sparse_to_dense(at, [4, 4], values, -1.0)
    filled, empty = tf.sparse.fill_empty_rows(a, 0.5)
    case.fetch(filled.indices, empty)
    b = case.feed("b", case.floats(4, 3), (4, None))
    product = [tf.sparse.sparse_dense_matmul(a, b), tf.sparse.sparse_dense_matmul(a, b, adjoint_a=True),
               tf.sparse.sparse_dense_matmul(a, tf.transpose(b), adjoint_b=True)]
    case.fetch_with_gradients([dense, filled.values * filled.values] + product, [values, b])
