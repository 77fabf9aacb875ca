# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements, update tensors by index or round to few bits, with their gradients."""
import numpy as np

from make import golden, tf, tf1

R = tf.raw_ops


@golden()
def moves(case):
    x = case.feed("x", case.floats(2, 4, 6, 3), (None, 4, 6, 3))
    lengths = case.feed("lengths", np.int64([5, 0]), (None,))
    pads = tf.constant([[0, 0], [1, 2], [2, 1], [0, 1]])
    inside = tf.constant([[0, 0], [1, 2], [2, 1], [0, 1]], tf.int64)
    blocks, around = [2, 3], [[1, 1], [0, 0]]
    ys = [
        tf.pad(x, pads, constant_values=0.5),
        tf.pad(x, inside, "REFLECT"),
        tf.pad(x, pads, "SYMMETRIC"),
        tf.reverse(x, [1, -1]),
        tf.reverse_sequence(x, lengths, seq_axis=2, batch_axis=0),
        tf.roll(x, [7, -1], [1, 3]),
        R.SpaceToBatchND(input=x, block_shape=blocks, paddings=around),
        R.BatchToSpaceND(input=tf.tile(x, [3, 1, 1, 1]), block_shape=blocks, crops=[[0, 1], [1, 0]]),
        tf1.space_to_depth(x, 2),
        tf1.depth_to_space(tf.tile(x, [1, 1, 1, 4]), 2),
        x[:, ::-2, 1:-1:2, tf.newaxis, ..., 1],
        tf.tile(x[:, :1], [1, 2, 1, 1]),
    ]
    case.fetch_with_gradients(ys, [x])


@golden()
def tiles_of_many_dimensions(case):
    """The gradient of Tile splits every dimension in two, 14 of the 7 that TensorFlow tiles."""
    x, y = case.feed("x", case.floats(2, 1, 3, 1, 2)), case.feed("y", case.floats(1, 2, 1, 1, 2, 1, 2))
    case.fetch_with_gradients([tf.tile(x, [1, 3, 2, 1, 2]), tf.tile(y, [2, 1, 1, 3, 2, 1, 1])], [x, y])


@golden()
def diagonals(case):
    x = case.feed("x", case.floats(2, 3, 4))
    d = case.feed("d", case.floats(2, 4, 3, seed=2))
    ys = [tf.linalg.band_part(x, 1, 0), tf.linalg.diag(x), tf.linalg.diag_part(x), tf.linalg.set_diag(x, d[:, 0])]
    for align in ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"):
        ys.append(tf.linalg.diag_part(x, k=(-2, 1), padding_value=0.5, align=align))
        ys.append(tf.linalg.set_diag(x, d, k=(-2, 1), align=align))
        ys.append(tf.linalg.diag(d, k=(-2, 1), num_rows=4, align=align))
    case.fetch_with_gradients(ys, [x, d])


@golden()
def slices_by_index(case):
    x = case.feed("x", case.floats(4, 3, 2), (None, 3, 2))
    rows = case.feed("rows", case.floats(3, 2, seed=2), (None, 2))
    at = case.feed("at", np.int32([[3, 0], [1, 2], [3, 0]]), (None, 2))
    once = at[:2]
    ys = [tf.gather_nd(x, at), tf.scatter_nd(at, rows, [4, 3, 2]), tf.tensor_scatter_nd_update(x, once, rows[:2])]
    for name in ("add", "sub", "min", "max"):
        ys.append(getattr(tf, f"tensor_scatter_nd_{name}")(x, at, rows))
    case.fetch_with_gradients(ys, [x, rows])


@golden(tolerance=1e-4)
def einsums(case):
    q, k = [case.feed(n, case.floats(2, 3, 4, 5, seed=i)) for i, n in enumerate("qk")]
    m = case.feed("m", case.floats(5, 5, seed=3))
    ys = [
        tf.einsum("bqhd,bkhd->bhqk", q, k),
        tf.einsum("...d,de->...e", q, m),
        tf.einsum("bqhd,bkhd,de->be", q, k, m),
        R.Einsum(inputs=[m], equation="ii->i"),
        R.Einsum(inputs=[q], equation="bqhd->dh"),
    ]
    case.fetch_with_gradients(ys, [q, k, m])


@golden()
def rounding(case):
    x = case.feed("x", case.floats(4, 3, low=-4, high=4), (None, 3))
    low, high = case.feed("low", np.float32(-1.3)), case.feed("high", np.float32(2.1))
    lows, highs = case.feed("lows", np.float32([-1, 0, -3])), case.feed("highs", np.float32([1, 2.5, 0.5]))
    ys = [
        tf.quantization.fake_quant_with_min_max_args(x, -1.5, 2, num_bits=4),
        tf.quantization.fake_quant_with_min_max_vars(x, low, high, narrow_range=True),
        tf.quantization.fake_quant_with_min_max_vars_per_channel(x, lows, highs, num_bits=3),
        tf.quantization.quantize_and_dequantize(x, low, high, range_given=True, num_bits=5),
        R.QuantizeAndDequantizeV4(input=x, input_min=low, input_max=high, range_given=True, num_bits=5),
    ]
    case.fetch_with_gradients(ys, [x, low, high, lows, highs])


@golden()
def quantized(case):
    x = case.feed("x", case.floats(5, 3, low=-4, high=4), (None, 3))
    lows, highs = tf.constant([-1, 0, -3.0]), tf.constant([1, 2.5, 0.5])
    plain = {tf.quint8: tf.uint8, tf.qint8: tf.int8, tf.quint16: tf.uint16, tf.qint16: tf.int16, tf.qint32: tf.int32}
    for dtype in plain:
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
            # The largest of qint32 overflow in TensorFlow.
            ends = (-9.0, 9.0) if dtype == tf.qint32 else (-1.3, 2.1)
            q, low, high = tf.quantization.quantize(x, *ends, dtype, mode=mode)
            if dtype != tf.qint32:  # whose integers float32 does not tell apart
                case.fetch(tf.bitcast(q, plain[dtype]))
            case.fetch(low, high, tf.quantization.dequantize(q, low, high, mode=mode))
    for narrow in (False, True):
        q, low, high = tf.quantization.quantize(x, lows, highs, tf.qint8, mode="SCALED", round_mode="HALF_TO_EVEN",
                                                narrow_range=narrow, axis=1)
        case.fetch(low, high, tf.quantization.dequantize(q, low, high, mode="SCALED", narrow_range=narrow, axis=1))


@golden()
def ragged_rows(case):
    """Rows of different lengths as tensors, with their gradients."""
    x = case.feed("x", case.floats(7))
    pairs = case.feed("pairs", case.floats(5, 2, seed=2))
    missing = case.feed("missing", np.float32(0.25))
    splits = tf.RaggedTensor.from_row_splits(x, [0, 3, 3, 7], validate=False)
    ids = tf.RaggedTensor.from_value_rowids(pairs, [0, 0, 2, 4, 4], nrows=6, validate=False)
    nested = tf.RaggedTensor.from_nested_row_splits(x, [[0, 2, 3], [0, 4, 4, 7]], validate=False)
    for rows, shape in ((splits, None), (splits, [None, 2]), (splits, [5, 5]), (ids, None), (ids, [4, 1, 2]),
                        (nested, None), (nested, [None, 1, 3])):
        case.fetch_with_gradients([rows.to_tensor(missing, shape=shape)], [x if rows is not ids else pairs, missing])


@golden()
def ragged_gathers(case):
    """Rows of ragged tensors by index, of sparse ones and of numbers in steps, with their gradients."""
    x = case.feed("x", case.floats(7))
    pairs = case.feed("pairs", case.floats(5, 2, seed=2))
    rows = tf.RaggedTensor.from_row_splits(x, [0, 3, 3, 7], validate=False)
    wide = tf.RaggedTensor.from_row_splits(pairs, np.int32([0, 1, 4, 5, 5]), validate=False)
    nested = tf.RaggedTensor.from_nested_row_splits(x, [[0, 2, 3], [0, 4, 4, 7]], validate=False)
    for ragged, values, indices in ((rows, x, [2, 0, 1, 2]), (wide, pairs, [[1, 1], [3, 0]]), (nested, x, [1, 0, 1]),
                                    (rows, x, np.zeros([0], np.int64))):
        taken = tf.gather(ragged, indices)
        case.fetch(*taken.nested_row_splits)
        case.fetch_with_gradients([taken.flat_values], [values])
    for ragged, values in ((rows, x), (wide, pairs), (nested, x)):
        sparse = ragged.to_sparse()
        case.fetch(sparse.indices, sparse.dense_shape)
        case.fetch_with_gradients([sparse.values], [values])
    ends = case.feed("ends", np.float32([2.5, -1, 7, 0.3]))
    for starts, limits, deltas in ((0.0, ends, 1.0), (ends, -ends, -0.7), (tf.cast(ends, tf.int32), 9, [2, 3, 20, 1]),
                                   (5, 1, 2), (3.0, 0.0, -0.1)):
        case.fetch(*tf.raw_ops.RaggedRange(starts=starts, limits=limits, deltas=deltas, Tsplits=tf.int32))


@golden()
def ragged_features(case):
    """Crosses of ragged, sparse and dense features; empty rows that get a value, with the gradients."""
    words = case.feed("words", np.array([b"a", b"b", b"c", b"d"]))
    ragged = tf.RaggedTensor.from_row_splits(words, [0, 1, 1, 4], validate=False)
    numbers = tf.RaggedTensor.from_row_splits(case.feed("numbers", np.int64([5, 6, 7])), [0, 1, 2, 3], validate=False)
    sparse, dense = tf.sparse.from_dense([["p", ""], ["", "q"], ["r", "s"]]), tf.constant([[1], [2], [3]], tf.int64)
    for inputs in ([ragged, numbers], [dense, ragged, sparse], [sparse], [sparse, numbers]):
        for rows in (tf.ragged.cross(inputs), tf.ragged.cross_hashed(inputs, 100, 7), tf.ragged.cross_hashed(inputs)):
            case.fetch(rows.values, rows.row_splits)
    x, missing = case.feed("x", case.floats(4)), case.feed("missing", np.float32(0.25))
    filled = tf.raw_ops.RaggedFillEmptyRows(value_rowids=[1, 1, 3, 4], values=x, nrows=6, default_value=missing)
    case.fetch(*filled)
    case.fetch_with_gradients([filled[1]], [x, missing])


@golden()
def layouts(case):
    """Dimensions of images in other layouts, rows that others take the place of."""
    for dtype in (np.int32, np.int64):
        for source, target, n in (("NHWC", "NCHW", 4), ("NCDHW", "NDHWC", 5)):
            formats = {"src_format": source, "dst_format": target}
            at = case.feed(f"at_{n}_{np.dtype(dtype).name}", np.arange(-n, n).astype(dtype))
            case.fetch(tf.raw_ops.DataFormatDimMap(x=at, **formats))
            for sizes in (at[:n], tf.reshape(at, (n, 2)), at[:n - 2], tf.reshape(at[:2 * n - 4], (n - 2, 2))):
                case.fetch(tf.raw_ops.DataFormatVecPermute(x=sizes, **formats))
    x, v = case.feed("x", case.floats(4, 3)), case.feed("v", case.floats(3, 3, seed=2))
    for k, change in enumerate((tf.raw_ops.InplaceUpdate, tf.raw_ops.InplaceAdd, tf.raw_ops.InplaceSub)):
        case.fetch(change(x=x * (2.0 + k), i=[2, 0, 2], v=v))  # TensorFlow writes into x
    case.fetch(tf.raw_ops.DeepCopy(x=x), *tf.math.approx_max_k(x, 2))


@golden("ragged_map_v1", v2=False)
@golden("ragged_map_v2", v2=True)
def ragged_map(case, v2):
    """Loops over rows of different lengths, which are elements of lists, with their gradients."""
    (tf1.enable_control_flow_v2 if v2 else tf1.disable_control_flow_v2)()
    x = case.feed("x", case.floats(7))
    pairs = case.feed("pairs", case.floats(5, 2, seed=2))
    rows = tf.RaggedTensor.from_row_splits(x, [0, 3, 3, 7], validate=False)
    wide = tf.RaggedTensor.from_row_splits(pairs, [0, 1, 4, 5], validate=False)
    nested = tf.RaggedTensor.from_nested_row_splits(x, [[0, 2, 3], [0, 4, 4, 7]], validate=False)
    row = tf.RaggedTensorSpec([None], tf.float32)
    sums = tf.map_fn(lambda r: tf.reduce_sum(r * r), rows, fn_output_signature=tf.float32)
    doubled = tf.map_fn(lambda r: tf.concat([r, 2 * r], 0), rows, fn_output_signature=row)
    columns = tf.map_fn(lambda r: r[:, 0], wide, fn_output_signature=row)
    lengths = tf.map_fn(lambda r: tf.cast(r.row_lengths(), tf.float32) + tf.reduce_sum(r), nested, fn_output_signature=row)
    case.fetch(doubled.row_splits, columns.row_splits, lengths.flat_values, lengths.row_splits)
    if v2:
        case.fetch_with_gradients([sums, doubled.flat_values], [x])
        case.fetch_with_gradients([columns.flat_values], [pairs])
    else:
        case.fetch(sums, doubled.flat_values, columns.flat_values)
    encode = tf.raw_ops.RaggedTensorToVariant
    one = encode(rt_nested_splits=[rows.row_splits], rt_dense_values=x, batched_input=False)
    several = tf.stack([tf.stack([one, one]), tf.stack([one, one])])
    for encoded, inner, outer in ((one, 1, 1), (several, 1, 3), (several, -1, 3),
                                  (encode(rt_nested_splits=[], rt_dense_values=pairs, batched_input=True), -1, 0)):
        parts = tf.raw_ops.RaggedTensorFromVariant(encoded_ragged=encoded, input_ragged_rank=inner, output_ragged_rank=outer,
                                                   Tvalues=tf.float32)
        case.fetch(*parts.output_nested_splits, parts.output_dense_values)


@golden()
def ragged_counts(case):
    """How often numbers come in rows of different lengths."""
    x = case.feed("x", np.int32([3, 1, 1, 0, 5, 3, 3]))
    weights = case.feed("weights", case.floats(7))
    rows = tf.RaggedTensor.from_row_splits(x, [0, 3, 3, 7], validate=False)
    for arguments in ({}, {"size": 4}, {"binary_output": True}):
        given = {"size": 7, "weights": np.int32([]), **arguments}
        case.fetch(tf.raw_ops.RaggedBincount(splits=rows.row_splits, values=x, **given))
    case.fetch(tf.raw_ops.RaggedBincount(splits=rows.row_splits, values=x, size=6, weights=weights))
    for arguments in ({}, {"minlength": 9}, {"maxlength": 4}, {"binary_output": True}, {"weights": weights}):
        given = {"weights": np.int64([]), "binary_output": False, **arguments}
        case.fetch(*tf.raw_ops.RaggedCountSparseOutput(splits=rows.row_splits, values=x, **given))


@golden()
def shuffled_indices(case):
    i = case.feed("i", np.arange(12, dtype=np.int64))
    for most, seed, rounds in ((11, [1, 2, 3], 4), (10**6, [4, 5, 6], 4), (2**45, [-7, 8, 9], 8)):
        case.fetch(tf.raw_ops.RandomIndexShuffle(index=i, seed=tf.constant(seed, tf.int64), max_index=tf.constant(most, tf.int64),
                                                 rounds=rounds))


@golden()
def sobol_points(case):
    for dim, points, skip, dtype in ((3, 20, 0, tf.float32), (101, 5, 700, tf.float64), (7, 1, 1 << 28, tf.float32)):
        case.fetch(tf.math.sobol_sample(dim, case.feed(f"n{dim}", np.int32(points)), skip, dtype))
