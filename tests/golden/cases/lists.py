# SPDX-License-Identifier: Apache-2.0
"""Elements as totals, sets, parts and counts; sparse tensors."""
import numpy as np

from make import golden, tf, tf1
from tensorflow.compiler.tf2xla.ops import gen_xla_ops


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


@golden()
def dynamic_slices(case):
    """Boxes read and set where a tensor says, as caches of keys and values are."""
    x = case.feed("x", case.floats(5, 3), (None, 3))
    at = case.feed("at", np.int32(2), ())
    update, read = gen_xla_ops.xla_dynamic_update_slice, gen_xla_ops.xla_dynamic_slice
    cache = update(input=tf.zeros([2, 4, 3]), update=x[tf.newaxis, :2], indices=tf.stack([0, at, 0]))
    beyond = update(input=cache, update=x[tf.newaxis, 2:], indices=tf.stack([at, at, -at]))
    case.fetch(cache, beyond, read(beyond, tf.stack([0, at, 1]), [1, 3, 2]))


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


@golden()
def tensor_lists(case):
    """Lists as functions of TensorFlow 2 use them, with their gradients."""
    R = tf.raw_ops
    x = case.feed("x", case.floats(4, 2), (None, 2))
    rows = R.TensorListFromTensor(tensor=x, element_shape=[2])
    element = {"element_dtype": tf.float32}
    gathered = R.TensorListGather(input_handle=rows, indices=[3, 0, 3], element_shape=[2], **element)
    scattered = R.TensorListScatterV2(tensor=x, indices=[2, 0, 3, 1], element_shape=[2], num_elements=4)
    older = R.TensorListScatter(tensor=x[:2], indices=[1, 0], element_shape=[2])
    into = R.TensorListScatterIntoExistingList(input_handle=rows, tensor=x[:2] * 3, indices=[3, 1])
    longer = R.TensorListResize(input_handle=rows, size=6)
    shorter = R.TensorListResize(input_handle=rows, size=2)
    pieces = R.TensorListSplit(tensor=x, element_shape=[-1, 2], lengths=np.int64([1, 0, 3]))
    joined, lengths = R.TensorListConcatV2(input_handle=pieces, element_shape=[-1, 2], leading_dims=np.int64([]), **element)
    first, _ = R.TensorListConcat(input_handle=pieces, element_shape=[None, 2], **element)
    stack = lambda handle, n: R.TensorListStack(  # noqa: E731
        input_handle=handle, element_shape=[2], num_elements=n, **element)
    both = R.TensorListConcatLists(input_a=rows, input_b=shorter, **element)
    results = [gathered, stack(scattered, 4), stack(older, 2), stack(into, 4), stack(shorter, 2), joined]
    case.fetch_with_gradients(results, [x])
    case.fetch(first, lengths, stack(longer, 6), stack(both, 6),
               R.TensorListLength(input_handle=longer))


@golden()
def tensor_arrays(case):
    """Arrays that are split, joined and closed, and the gradients that pass through them."""
    R = tf.raw_ops
    x = case.feed("x", case.floats(6, 2), (None, 2))
    array = tf1.TensorArray(tf.float32, 3, infer_shape=False, clear_after_read=False).split(x, [1, 2, 3])
    y = array.concat()
    case.fetch_with_gradients([y * y, array.read(1)], [x])
    handle, flow = R.TensorArrayV3(size=3, dtype=tf.float32, element_shape=(2,))
    flow = R.TensorArrayScatterV3(handle=handle, indices=[2, 0, 1], value=x[:3], flow_in=flow)
    size = R.TensorArraySizeV3(handle=handle, flow_in=flow)
    all_of = R.TensorArrayGatherV3(handle=handle, indices=[1, 0], flow_in=flow, dtype=tf.float32)
    case.fetch(size, all_of)
    with tf1.control_dependencies([size, all_of]):
        case.target(R.TensorArrayCloseV3(handle=handle))
    stack = R.StackV2(max_size=3, elem_type=tf.float32)
    pushed = R.StackPushV2(handle=stack, elem=x[0])
    with tf1.control_dependencies([pushed]):
        popped = R.StackPopV2(handle=stack, elem_type=tf.float32)
    case.fetch(popped)
    with tf1.control_dependencies([popped]):
        case.target(R.StackCloseV2(handle=stack))


@golden()
def means_of_rows(case):
    """Segments of rows given by indices, with a number of segments, and their gradients as ops."""
    R = tf.raw_ops
    x = case.feed("x", case.floats(5, 3), (None, 3))
    indices, segments = tf.constant([0, 4, 2, 4]), tf.constant([0, 0, 2, 3])
    results = [getattr(R, f"SparseSegment{kind}WithNumSegments")(data=x, indices=indices, segment_ids=segments,
                                                                 num_segments=6) for kind in ("Sum", "Mean", "SqrtN")]
    case.fetch_with_gradients(results, [x])
    for kind in ("Sum", "Mean", "SqrtN"):
        case.fetch(*getattr(R, f"SparseSegment{kind}GradV2")(grad=x[:4], indices=indices, segment_ids=segments,
                                                             dense_output_dim0=5))


@golden()
def gradient_arrays(case):
    """The array of another's gradients, with more dimensions before its elements'."""
    R = tf.raw_ops
    x = case.feed("x", case.floats(3, 2), (3, 2))
    handle, flow = R.TensorArrayV3(size=3, dtype=tf.float32, element_shape=(2,))
    flow = R.TensorArrayScatterV3(handle=handle, indices=[0, 1, 2], value=x, flow_in=flow)
    wide, wide_flow = R.TensorArrayGradWithShape(handle=handle, flow_in=flow, shape_to_prepend=[4], source="gradients")
    wide_flow = R.TensorArrayWriteV3(handle=wide, index=1, value=tf.reshape(tf.range(8.0), (4, 2)), flow_in=wide_flow)
    case.fetch(R.TensorArrayReadV3(handle=wide, index=1, flow_in=wide_flow, dtype=tf.float32),
               R.TensorArraySizeV3(handle=wide, flow_in=wide_flow))


@golden()
def sparse_counts(case):
    R = tf.raw_ops
    numbers = np.array([[3, 0, 7, 3], [1, 1, 0, 0], [0, 0, 0, 0], [9, 3, 3, 3]])
    weights = np.array([[0.5, 9, -2, 1], [2, 4, 9, 9], [9, 9, 9, 9], [1, 2, 3, 4]])
    rows = case.feed("rows", numbers, (None, 4))
    for index in (tf.int32, tf.int64):
        sparse = tf.sparse.from_dense(tf.cast(rows, index))
        row = {"indices": sparse.indices, "values": sparse.values, "dense_shape": sparse.dense_shape}
        for dtype in (tf.int32, tf.int64, tf.float32, tf.float64):
            all_weights = tf.cast(weights, dtype)
            some = tf.gather_nd(all_weights, sparse.indices)
            case.fetch(R.SparseBincount(**row, size=tf.constant(8, index), weights=some),
                       *R.SparseCountSparseOutput(**row, weights=some, maxlength=5, binary_output=False),
                       *R.DenseCountSparseOutput(values=tf.cast(rows, index), weights=all_weights, minlength=12,
                                                 binary_output=False))
    none = tf.constant([], tf.float32)
    for least, most, binary in ((-1, -1, False), (2, 4, True), (-1, 1, False), (-1, 0, False)):
        how = {"weights": none, "minlength": least, "maxlength": most, "binary_output": binary}
        case.fetch(*R.SparseCountSparseOutput(**row, **how), *R.DenseCountSparseOutput(values=rows, **how))
    case.fetch(R.SparseBincount(**row, size=np.int64(4), weights=none, binary_output=True))
    line = tf.sparse.from_dense(rows[3])
    case.fetch(tf.math.bincount(line, dtype=tf.int32), *R.DenseCountSparseOutput(
        values=rows[0], weights=none, binary_output=False), *R.SparseCountSparseOutput(
            indices=line.indices, values=line.values, dense_shape=line.dense_shape, weights=none, binary_output=False))
