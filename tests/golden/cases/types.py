# SPDX-License-Identifier: Apache-2.0
"""Families of ops in every type that TensorFlow has a CPU kernel for and Troupe a tensor, over values that have rules of
their own: zeros, ends of a type's range, infinities, NaN."""
import numpy as np
from tensorflow.python.framework import kernels, op_def_registry

from make import golden, tf, tf1

R = tf.raw_ops
FLOATS = [tf.float32, tf.float64, tf.float16, tf.bfloat16]
INTEGERS = [tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64]
COMPLEX = [tf.complex64, tf.complex128]
TYPES = FLOATS + INTEGERS + COMPLEX + [tf.bool, tf.string]
# Halves are rounded after each op here, in TensorFlow's kernels now and then within one.
TOLERANCE = {tf.float16: 2e-3, tf.bfloat16: 1.6e-2}


def has_kernel(op, **types):
    """Whether TensorFlow's CPU has a kernel of `op` for these types, and the op itself takes them."""
    allowed = {a.name: a.allowed_values.list.type for a in op_def_registry.get(op).attr}
    if any(allowed[name] and t.as_datatype_enum not in allowed[name] for name, t in types.items()):
        return False
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        fits = all(types[c.name].as_datatype_enum in c.allowed_values.list.type for c in kernel.constraint
                   if c.name in types)
        if kernel.device_type == "CPU" and fits:
            return True
    return False


def in_each_type(name, types=TYPES):
    """Decorates f(case, dtype): a case for each type, called like `name` and the type."""

    def add(function):
        for dtype in types:
            golden(f"{name}_{dtype.name}", tolerance=TOLERANCE.get(dtype, 1e-5), dtype=dtype)(function)
        return function

    return add


def operand(case, name, values, dtype):
    """A placeholder; of bfloat16, which NumPy does not have, the cast of one."""
    if dtype == tf.string:
        return case.feed(name, np.array([str(v).encode() for v in np.ravel(values)], object).reshape(np.shape(values)))
    if dtype == tf.bfloat16:
        return tf.cast(case.feed(name, np.float32(values)), dtype)
    return case.feed(name, np.array(values).astype(dtype.as_numpy_dtype))


def fetch(case, *tensors):
    case.fetch(*[tf.cast(t, tf.float32) if t.dtype.base_dtype == tf.bfloat16 else t for t in tensors])


def fetch_slopes(case, y, xs, weights):
    """The gradients of y, where TensorFlow has them."""
    if y.dtype != xs[0].dtype:
        return
    try:
        slopes = tf.gradients(y, xs, weights)
    except (LookupError, TypeError):  # none, or none of this type
        return
    fetch(case, *[s for s in slopes if s is not None])


def ordinary(dtype):
    """Values in the range of every function, none at a kink."""
    if dtype.is_complex:
        return [0.3 + 0.4j, -0.7 + 0.1j, 0.2 - 0.9j, -0.5 - 0.6j, 0.8 + 0.05j, 0.6j]
    if dtype in FLOATS:
        return [0.25, -0.75, 0.9375, -0.125, 0.5, 0.375]
    return [1, 5, 2, 100, 7, 3]


def unusual(dtype):
    """Zeros, ends and what lies beyond."""
    if dtype.is_complex:
        return [0, 1, -1, 1j, 2.5 - 3j, -3 + 0.5j]
    if dtype in FLOATS:
        return [0.0, -0.0, 1, -1, 1.5, -2.5, 0.5, 3.25, np.inf, -np.inf, np.nan]
    if dtype == tf.bool:
        return [False, True]
    least, most = np.iinfo(dtype.as_numpy_dtype).min, np.iinfo(dtype.as_numpy_dtype).max
    return [0, 1, least, 7, most] if least == 0 else [0, 1, -1, 7, -100, least, most]


UNARY = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Conj Cos Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 Floor Inv Invert IsFinite
IsInf IsNan L2Loss LeakyRelu Lgamma Log Log1p LogicalNot Ndtri Neg OnesLike Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid
Sign Sin Sinh Softplus Softsign Sqrt Square Tan Tanh ZerosLike""".split()
INPUT = {"Conj": "input", "L2Loss": "t", "Elu": "features", "LeakyRelu": "features", "Relu": "features",
         "Relu6": "features", "Selu": "features", "Softplus": "features", "Softsign": "features"}
# Integers have no rule for their least value here: its negative does not exist.
NOT_LEAST = ("Abs", "Neg", "L2Loss")


INSIDE = {"Acosh": lambda x: x + 1, **dict.fromkeys(["Log", "Rsqrt", "Sqrt", "Ndtri", "Lgamma", "Digamma"], tf.abs)}


@in_each_type("functions", [t for t in TYPES if t != tf.string])
def functions(case, dtype):
    """Functions of one number, and the gradients where TensorFlow has them."""
    x = operand(case, "x", unusual(dtype), dtype)
    y = operand(case, "y", ordinary(dtype), dtype) if dtype in FLOATS + COMPLEX else None
    for op in UNARY:
        if op == "LogicalNot" and dtype != tf.bool or not has_kernel(op, **({} if op == "LogicalNot" else {"T": dtype})):
            continue
        function = getattr(R, op)
        name = INPUT.get(op, "x")
        values = x
        if op in NOT_LEAST and dtype in INTEGERS:
            values = x[:5]
        elif op == "Erf" and dtype == tf.float64:  # of infinity, TensorFlow 2.21 makes NaN
            values = x[:8]
        elif op == "Log1p" and dtype.is_complex:  # of -1, it makes -inf and NaN
            values = x[3:]
        elif op == "Round" and dtype in INTEGERS:  # it makes 0 of all
            continue
        fetch(case, function(**{name: values}))
        if y is not None:
            inside = INSIDE[op](y) if op in INSIDE and not dtype.is_complex else y
            result = function(**{name: inside})
            fetch(case, result)
            fetch_slopes(case, result, [y], None if result.shape.rank == 0 else [y])
    fetch(case, R.ZerosLike(x=x[:0]), R.OnesLike(x=x[0]))


BINARY = """Add AddV2 ApproximateEqual Atan2 BitwiseAnd BitwiseOr BitwiseXor Div DivNoNan Equal FloorDiv FloorMod Greater
GreaterEqual Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mod Mul MulNoNan NotEqual Pow RealDiv SquaredDifference Sub
TruncateDiv TruncateMod Xdivy Xlog1py Xlogy""".split()
DIVIDE = ("Div", "FloorDiv", "FloorMod", "Mod", "RealDiv", "TruncateDiv", "TruncateMod")


@in_each_type("pairs")
def pairs(case, dtype):
    """Functions of two numbers: every pair of the unusual ones, which is broadcasting too."""
    left, right = (["", "a", "b", "ab"], ["a", "", "abc"]) if dtype == tf.string else (unusual(dtype),) * 2
    x, y = operand(case, "x", np.reshape(left, (-1, 1)), dtype), operand(case, "y", right, dtype)
    # No type of whole numbers divides by zero, nor its least by -1; none has negative powers.
    divisors = operand(case, "divisors", [1, 3, 7, 100], dtype) if dtype in INTEGERS else y
    powers = operand(case, "powers", [0, 1, 2, 5], dtype) if dtype in INTEGERS and has_kernel("Pow", T=dtype) else y
    smooth = dtype in FLOATS or dtype.is_complex
    if smooth:
        u, v = operand(case, "u", np.reshape(ordinary(dtype)[:3], (3, 1)), dtype), operand(case, "v", ordinary(dtype)[3:], dtype)
        positive = [tf.cast(tf.abs(t), dtype) + 1 for t in (u, v)]
    for op in BINARY:
        typed = op not in ("LogicalAnd", "LogicalOr")
        if not typed and dtype != tf.bool or not has_kernel(op, **({"T": dtype} if typed else {})):
            continue
        if op == "ApproximateEqual":
            fetch(case, R.ApproximateEqual(x=y, y=tf.reverse(y, [0])))
            continue
        function = lambda a, b: getattr(R, op)(**{  # noqa: B023, E731
            "y" if op == "Atan2" else "x": a, "x" if op == "Atan2" else "y": b})
        fetch(case, function(x, divisors if op in DIVIDE else powers if op == "Pow" else y))
        if smooth:
            result = function(*(positive if op in ("Pow", "Xlogy", "Xlog1py") else (u, v)))
            fetch(case, result)
            fetch_slopes(case, result, [u, v], None)
    if has_kernel("AddV2", T=dtype):
        fetch(case, R.AddV2(x=x[:0], y=y), R.AddV2(x=x[0, 0], y=y[1]))


NUMBERS = [t for t in TYPES if t not in (tf.bool, tf.string)]


@in_each_type("totals", NUMBERS + [tf.bool])
def reductions(case, dtype):
    """Reductions over every set of axes, with NaN and infinity, of nothing; running totals; the largest few."""
    values = ordinary(dtype) + unusual(dtype)[:6] if dtype != tf.bool else [True, False, True, True, True, False] * 2
    if dtype in INTEGERS:
        values = [1, 2, 3, 1, 5, 2, 2, 1, 0, 4, 3, 2]
    x = operand(case, "x", np.reshape(values, (2, 3, 2)), dtype)
    if not dtype.is_complex:  # which have no order
        odd = operand(case, "odd", np.reshape((unusual(dtype) * 6)[:12], (4, 3)), dtype)
    axes = [[0, 1, 2], [1], [0, -1], []]
    for op in ("Sum", "Prod", "Max", "Min", "Mean", "EuclideanNorm", "All", "Any"):
        typed = op not in ("All", "Any")
        if not typed and dtype != tf.bool or not has_kernel(op, **({"T": dtype} if typed else {})):
            continue
        function = lambda v, axis, keep=False: getattr(R, op)(input=v, axis=axis, keep_dims=keep)  # noqa: B023, E731
        fetch(case, *[function(x, np.int32(a).reshape(-1), len(a) == 1) for a in axes])
        fetch(case, function(x[:, :0], np.int64([1])), function(x[0, 0, 0], np.int32([])))
        if op in ("Max", "Min") or dtype in FLOATS:
            fetch(case, function(odd, [0]), function(odd, [1]))
    for op in ("ArgMax", "ArgMin"):
        if has_kernel(op, T=dtype):
            fetch(case, *[getattr(R, op)(input=x, dimension=d, output_type=t) for d, t in ((0, tf.int64), (-1, tf.int32))])
            fetch(case, getattr(R, op)(input=odd, dimension=1))
    for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
        if has_kernel(op, T=dtype):
            fetch(case, *[getattr(R, op)(x=x, axis=a, exclusive=e, reverse=r)
                          for a, e, r in ((0, False, False), (1, True, False), (-1, False, True), (1, True, True))])
    if has_kernel("TopKV2", T=dtype):
        fetch(case, *R.TopKV2(input=x, k=2, sorted=True))
    for op in ("Max", "Min", "Sum", "Prod"):
        for kind in ("Segment", "Unsorted"):
            name = f"Segment{op}" if kind == "Segment" else f"UnsortedSegment{op}"
            if not has_kernel(name, T=dtype):
                continue
            rows = tf.reshape(x, (4, 3))
            if kind == "Segment":
                fetch(case, getattr(R, name)(data=rows, segment_ids=[0, 0, 2, 3]))
            else:
                fetch(case, getattr(R, name)(data=rows, segment_ids=[3, 0, -1, 0], num_segments=5))
    if has_kernel("SegmentMean", T=dtype):
        fetch(case, R.SegmentMean(data=tf.reshape(x, (4, 3)), segment_ids=[0, 0, 2, 3]))
    if has_kernel("AddN", T=dtype):
        fetch(case, R.AddN(inputs=[x, x, x[::-1]]), tf1.accumulate_n([x, x[::-1]]))
    if has_kernel("ClipByValue", T=dtype):
        values = x if dtype.is_complex else odd
        fetch(case, R.ClipByValue(t=values, clip_value_min=x[0, 0, 0], clip_value_max=x[0, 1, 0]))


@in_each_type("places")
def places(case, dtype):
    """Ops that move, choose and set elements."""
    values = list("abcdefghijkl") if dtype == tf.string else np.array([1, 0] * 6, bool) if dtype == tf.bool else (
        np.arange(12) * (1 - 0.5j) if dtype.is_complex else np.arange(12))
    x = operand(case, "x", np.reshape(values, (2, 3, 2)), dtype)
    flat = tf.reshape(x, (12,))
    one = flat[5]

    def have(op, attr="T", **more):
        return has_kernel(op, **{attr: dtype}, **more)

    def each(op, attr, *calls, result=None):
        if have(op, attr):
            for arguments in calls:
                got = getattr(R, op)(**arguments)
                fetch(case, *(got if isinstance(got, (list, tuple)) else [got]))

    each("Concat", "T", {"concat_dim": 1, "values": [x, x[:, :1]]})
    each("ConcatV2", "T", {"axis": -1, "values": [x, x, x[..., :0]]})
    each("Split", "T", {"axis": 1, "value": x, "num_split": 3})
    each("SplitV", "T", {"value": x, "size_splits": [1, -1, 0], "axis": 1, "num_split": 3})
    each("Pack", "T", {"values": [x, x], "axis": 1})
    each("Unpack", "T", {"value": x, "num": 3, "axis": 1})
    if dtype not in (tf.uint16, tf.uint32, tf.uint64):  # TensorFlow: "not supported", whatever its registry says
        each("Tile", "T", {"input": x, "multiples": [1, 0, 2]}, {"input": x, "multiples": [2, 1, 2]})
    each("Reverse", "T", {"tensor": x, "dims": [True, False, True]})
    each("ReverseV2", "T", {"tensor": x, "axis": [0, -1]})
    each("ReverseSequence", "T", {"input": x, "seq_lengths": [2, 0], "seq_dim": 1})
    each("Transpose", "T", {"x": x, "perm": [2, 0, 1]})
    each("ConjugateTranspose", "T", {"x": x, "perm": [1, 2, 0]})
    each("Slice", "T", {"input": x, "begin": [0, 1, 0], "size": [-1, 2, 1]})
    each("StridedSlice", "T", {"input": x, "begin": [1, -1, 0], "end": [0, 0, 2], "strides": [1, -1, 1], "shrink_axis_mask": 1,
                               "end_mask": 2, "ellipsis_mask": 0})
    each("Pad", "T", {"input": x, "paddings": [[0, 1], [1, 0], [0, 0]]})
    each("PadV2", "T", {"input": x, "paddings": [[0, 1], [1, 0], [0, 0]], "constant_values": one})
    each("MirrorPad", "T", {"input": x, "paddings": [[0, 1], [2, 0], [0, 0]], "mode": "REFLECT"})
    each("Roll", "T", {"input": x, "shift": [1, -2], "axis": [0, 1]})
    each("Gather", "Tparams", {"params": x, "indices": [[1], [0]]})
    each("GatherV2", "Tparams", {"params": x, "indices": np.int64([2, 0, 2]), "axis": 1})
    each("GatherNd", "Tparams", {"params": x, "indices": [[1, 2], [0, 1]]})
    each("ScatterNd", "T", {"indices": [[2], [0]], "updates": x[:, 0], "shape": [4, 2]})
    each("TensorScatterUpdate", "T", {"tensor": x, "indices": [[1, 2]], "updates": x[:1, 0]})
    for op in ("TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"):
        each(op, "T", {"tensor": x, "indices": [[1, 2], [0, 1]], "updates": x[:, 1]})
    each("ScatterNdNonAliasingAdd", "T", {"input": x, "indices": [[1, 2], [0, 1]], "updates": x[:, 0]})
    each("BroadcastTo", "T", {"input": x[:, :1], "shape": [2, 2, 4, 2]})
    each("ExpandDims", "T", {"input": x, "axis": -2})
    each("Squeeze", "T", {"input": x[:, :1], "axis": [1]})
    each("Diag", "T", {"diagonal": x[0, :2]})
    each("DiagPart", "T", {"input": tf.reshape(flat[:4], (2, 2))})
    each("MatrixDiag", "T", {"diagonal": x})
    each("MatrixDiagPart", "T", {"input": x})
    each("MatrixSetDiag", "T", {"input": x, "diagonal": x[:, 0]})
    each("MatrixBandPart", "T", {"input": x, "num_lower": np.int64(0), "num_upper": np.int64(-1)})
    each("MatrixDiagV2", "T", {"diagonal": x, "k": [-1, 1], "num_rows": 2, "num_cols": 2, "padding_value": one})
    each("MatrixDiagPartV2", "T", {"input": x, "k": [-1, 0], "padding_value": one})
    each("MatrixSetDiagV2", "T", {"input": x, "diagonal": x[:, :2], "k": [-1, 0]})
    each("SpaceToBatch", "T", {"input": tf.reshape(x, (1, 2, 3, 2)), "paddings": [[0, 0], [1, 0]], "block_size": 2})
    each("BatchToSpace", "T", {"input": tf.reshape(x, (4, 1, 3, 1)), "crops": [[0, 1], [1, 0]], "block_size": 2})
    each("SpaceToBatchND", "T", {"input": x, "block_shape": [3], "paddings": [[0, 0]]})
    each("BatchToSpaceND", "T", {"input": x, "block_shape": [2], "crops": [[0, 1]]})
    each("SpaceToDepth", "T", {"input": tf.reshape(x, (1, 2, 6, 1)), "block_size": 2})
    each("DepthToSpace", "T", {"input": tf.reshape(x, (1, 1, 3, 4)), "block_size": 2})
    each("Select", "T", {"condition": [True, False], "x": x, "y": x[::-1]})
    each("SelectV2", "T", {"condition": [[True], [False], [True]], "t": x, "e": one})
    if dtype not in (tf.float16, tf.bfloat16):  # TensorFlow: "no WhereOp available"
        each("Where", "T", {"condition": x})
    each("Fill", "T", {"dims": [2, 0], "value": one}, {"dims": np.int64([3]), "value": one})
    each("OneHot", "T", {"indices": [[2], [-1]], "depth": 3, "on_value": one, "off_value": flat[0], "axis": 1})
    each("Unique", "T", {"x": tf.concat([flat[3:6], flat[:4]], 0)})
    each("UniqueV2", "T", {"x": tf.concat([x, x], 1), "axis": [1]})
    each("UniqueWithCounts", "T", {"x": tf.concat([flat[3:6], flat[:4]], 0)})
    each("ListDiff", "T", {"x": flat, "y": flat[3:5]})
    each("InvertPermutation", "T", {"x": flat[:4][::-1]})
    each("LinSpace", "T", {"start": flat[1], "stop": flat[4], "num": 5})
    each("Range", "Tidx", {"start": flat[1], "limit": flat[9], "delta": flat[3]})
    each("DynamicPartition", "T", {"data": x, "partitions": [1, 0], "num_partitions": 2})
    each("DynamicStitch", "T", {"indices": [[2, 0], [1]], "data": [x[:, 0], x[:1, 1]]})
    each("SparseToDense", "T", {"sparse_indices": [1, 3], "output_shape": [5], "sparse_values": flat[6:8], "default_value": one})
    each("Equal", "T", {"x": x, "y": x[:1]})
    each("NotEqual", "T", {"x": x, "y": x[:1]})
    each("Shape", "T", {"input": x})
    each("Size", "T", {"input": x})
    each("Rank", "T", {"input": x})


@in_each_type("casts", [t for t in TYPES if t != tf.string])
def casts(case, dtype):
    """To every type, of values that it has."""
    low = 0 if dtype in INTEGERS and dtype.min == 0 else -3
    values = [0, 1, 2.75, 100, low] if dtype != tf.bool else [True, False]
    x = operand(case, "x", values, dtype)
    for to in TYPES:
        if to == tf.string or not has_kernel("Cast", SrcT=dtype, DstT=to):
            continue
        # Beyond a type's range there is no rule.
        y = tf.abs(x) if to in INTEGERS and to.min == 0 and dtype not in COMPLEX + [tf.bool] and low < 0 else x
        if dtype.is_complex and to in INTEGERS and to.min == 0:
            y = x[:4]
        fetch(case, tf.cast(y, to))
        if dtype in FLOATS and to in (tf.float16, tf.bfloat16):
            fetch(case, R.Cast(x=y * 1.37, DstT=to, Truncate=True))
