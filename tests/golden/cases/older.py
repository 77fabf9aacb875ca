# SPDX-License-Identifier: Apache-2.0
"""Ops of older graphs, which become others when they are read: on references to queues, readers, tables and variables,
and under names of before."""
import base64

import numpy as np

from make import golden, tf, tf1

R = tf.raw_ops


def in_order(*steps):
    """Calls each function once what the one before returned has run; what they return."""
    out = []
    for step in steps:
        with tf1.control_dependencies(tf.nest.flatten(out[-1]) if out else []):
            out.append(step())
    return out


@golden(steps=2)
def older_queues(case):
    x = case.feed("x", case.floats(5, 2))
    for make, types in ((lambda name: R.FIFOQueue(component_types=[tf.float32], shapes=[(2,)], shared_name=name), ()),
                        (lambda name: R.PaddingFIFOQueue(component_types=[tf.float32], shapes=[(None,)],
                                                         shared_name=name), ()),
                        (lambda name: R.PriorityQueue(component_types=[tf.float32], shapes=[(2,)], shared_name=name),
                         (tf.int64,))):
        queue = make(f"queue_{len(case.fetches)}")
        keys = [np.int64([3, -1, 7, 4, 0])] if types else []
        how = {"handle": queue, "component_types": [*types, tf.float32]}
        _, one, _, many, some, size = in_order(
            lambda: R.QueueEnqueueMany(handle=queue, components=[*keys, x]), lambda: R.QueueDequeue(**how),
            lambda: R.QueueEnqueue(handle=queue, components=[*[k[0] + 2 for k in keys], x[0]]),
            lambda: R.QueueDequeueMany(n=2, **how), lambda: R.QueueDequeueUpTo(n=3, **how), lambda: R.QueueSize(handle=queue))
        case.fetch(*one, *many, *some, size)
    shuffling = R.RandomShuffleQueue(component_types=[tf.float32], shapes=[(2,)], shared_name="shuffling")
    _, mixed = in_order(lambda: R.QueueEnqueueMany(handle=shuffling, components=[x]),
                        lambda: R.QueueDequeueMany(handle=shuffling, n=5, component_types=[tf.float32]))
    case.fetch(tf.sort(mixed[0], 0))


@golden()
def older_closed_queue(case):
    queue = R.FIFOQueue(component_types=[tf.int32], shapes=[()], shared_name="closing")
    _, before, _, after, left = in_order(
        lambda: R.QueueEnqueueMany(handle=queue, components=[[4, 5, 6]]), lambda: R.QueueIsClosed(handle=queue),
        lambda: R.QueueClose(handle=queue), lambda: R.QueueIsClosed(handle=queue),
        lambda: R.QueueDequeueUpTo(handle=queue, n=4, component_types=[tf.int32]))
    case.fetch(before, after, left[0])


@golden()
def older_readers(case):
    case.as_of(24)
    folder = case.directory("folder")
    path = tf.strings.join([folder, "/lines"])
    readers = {"lines": R.TextLineReader(shared_name="lines"), "whole": R.WholeFileReader(shared_name="whole"),
               "identity": R.IdentityReader(shared_name="identity")}
    for name, reader in readers.items():
        queue = R.FIFOQueue(component_types=[tf.string], shapes=[()], shared_name=f"files_{name}")
        how = {"reader_handle": reader, "queue_handle": queue}
        steps = [lambda: tf.io.write_file(path, "ab\ncdefg\n"), lambda: R.QueueEnqueue(handle=queue, components=[path]),
                 lambda: R.QueueClose(handle=queue), lambda: R.ReaderRead(**how)]
        if name == "lines":
            steps.append(lambda: R.ReaderReadUpTo(num_records=1, **how))
        steps += [lambda: R.ReaderNumRecordsProduced(reader_handle=reader),
                  lambda: R.ReaderNumWorkUnitsCompleted(reader_handle=reader), lambda: R.ReaderReset(reader_handle=reader),
                  lambda: R.ReaderNumRecordsProduced(reader_handle=reader)]
        results = [r for r in in_order(*steps)[3:] if not isinstance(r, tf1.Operation)]
        for result in results:
            if isinstance(result, tf.Tensor):
                case.fetch(result)
            elif name != "identity":  # its values are paths
                case.fetch(result.value if hasattr(result, "value") else result.values)


@golden()
def older_tables(case):
    keys = case.feed("keys", np.int64([4, 1, 9]), (None,))
    folder = case.directory("folder")
    default = np.float32(7)
    fixed = R.HashTable(key_dtype=tf.int64, value_dtype=tf.float32, shared_name="fixed")
    changing = R.MutableHashTable(key_dtype=tf.int64, value_dtype=tf.float32, shared_name="changing")
    vectors = R.MutableHashTableOfTensors(key_dtype=tf.int64, value_dtype=tf.float32, value_shape=(2,),
                                          shared_name="vectors")
    words = R.HashTable(key_dtype=tf.string, value_dtype=tf.int64, shared_name="words")
    path = tf.strings.join([folder, "/words"])
    _, found, size, _, _, changed, _, exported, _, rows, _, _, places = in_order(
        lambda: R.InitializeTable(table_handle=fixed, keys=np.int64([1, 4, 5]), values=np.float32([0.5, 2, -1])),
        lambda: R.LookupTableFind(table_handle=fixed, keys=keys, default_value=default),
        lambda: R.LookupTableSize(table_handle=fixed),
        lambda: R.LookupTableInsert(table_handle=changing, keys=keys, values=np.float32([1, 2, 3])),
        lambda: R.LookupTableInsert(table_handle=changing, keys=np.int64([1]), values=np.float32([5])),
        lambda: R.LookupTableFind(table_handle=changing, keys=np.int64([1, 2]), default_value=default),
        lambda: R.LookupTableImport(table_handle=changing, keys=np.int64([8]), values=np.float32([6])),
        lambda: R.LookupTableExport(table_handle=changing, Tkeys=tf.int64, Tvalues=tf.float32),
        lambda: R.LookupTableInsert(table_handle=vectors, keys=np.int64([3]), values=np.float32([[1, 2]])),
        lambda: R.LookupTableFind(table_handle=vectors, keys=np.int64([3, 4]), default_value=np.float32([0, 9])),
        lambda: tf.io.write_file(path, "one\ntwo\nthree\n"),
        lambda: R.InitializeTableFromTextFile(table_handle=words, filename=path, key_index=-2, value_index=-1),
        lambda: R.LookupTableFind(table_handle=words, keys=[b"three", b"four"], default_value=np.int64(-1)))
    case.fetch(found, size, changed, *exported, rows, places)


@golden(steps=2)
def older_updates(case):
    """Updates of references that no optimizer of TensorFlow makes."""
    grad = case.feed("grad", case.floats(4, 3))
    rate = 0.1

    def variables(name, *starts):
        return [case.variable(f"{name}_{i}", 4, 3, resource=False, **({"scale": 1} if s is None else {"value": s}))
                for i, s in enumerate(starts)]

    def fetch_after(update, *changed):
        with tf1.control_dependencies([update]):
            case.fetch(*[tf.negative(v.read_value()) for v in changed])

    var, m, v = variables("ada_max", None, 0, 0)
    fetch_after(R.ApplyAdaMax(var=var._ref(), m=m._ref(), v=v._ref(), beta1_power=0.5, lr=rate, beta1=0.9, beta2=0.99,
                              epsilon=1e-3, grad=grad), var, m, v)
    for op, base in ((R.ApplyAddSign, {"alpha": 1.0}), (R.ApplyPowerSign, {"logbase": 1.0})):
        var, m = variables(f"sign_{len(base)}_{next(iter(base))}", None, 0.1)
        fetch_after(op(var=var._ref(), m=m._ref(), lr=rate, sign_decay=0.7, beta=0.9, grad=grad, **base), var, m)
    var, sums = variables("adagrad", None, 0.1)
    fetch_after(R.ApplyAdagradV2(var=var._ref(), accum=sums._ref(), lr=rate, epsilon=1e-3, grad=grad), var, sums)
    var, sums = variables("sparse_adagrad", None, 0.1)
    fetch_after(R.SparseApplyAdagradV2(var=var._ref(), accum=sums._ref(), lr=rate, epsilon=1e-3, grad=grad[:2],
                                       indices=[3, 1]), var, sums)
    (var,) = variables("slices", None)
    fetch_after(R.StridedSliceAssign(ref=var._ref(), begin=[0, 0], end=[4, 2], strides=[3, 1], value=grad[:2, :2]), var)
    for name, op in (("most", R.ScatterNdMax), ("least", R.ScatterNdMin)):
        (var,) = variables(name, None)
        fetch_after(op(ref=var._ref(), indices=[[0, 1], [3, 0], [0, 1]], updates=grad[0]), var)
    count = tf1.get_variable("count", initializer=np.int64(3), use_resource=False)
    case.fetch(R.CountUpTo(ref=count._ref(), limit=9))
    case.fetch(tf.identity(R.RefIdentity(input=variables("same", None)[0]._ref())))


@golden()
def older_names(case):
    case.as_of(8)
    x = case.feed("x", case.floats(2, 3, 3), (None, 3, 3))
    square = tf.matmul(x, x, transpose_b=True) + np.float32([[2, 0, 0], [0, 3, 0], [0, 0, 4]])
    lower = R.BatchCholesky(input=square)
    diagonal = R.BatchMatrixDiagPart(input=x)
    case.fetch(lower, R.BatchCholeskyGrad(l=lower, grad=lower * 0.5), R.BatchMatrixInverse(input=square),
               R.BatchMatrixDeterminant(input=square), R.BatchMatrixSolve(matrix=square, rhs=x),
               R.BatchMatrixTriangularSolve(matrix=lower, rhs=x),
               R.BatchMatrixSolveLs(matrix=tf.cast(square, tf.float64), rhs=tf.cast(x, tf.float64), l2_regularizer=0.1),
               R.BatchMatrixBandPart(input=x, num_lower=1, num_upper=0), R.BatchMatrixDiag(diagonal=diagonal), diagonal,
               R.BatchMatrixSetDiag(input=x, diagonal=diagonal * 2), R.BatchSelfAdjointEigV2(input=square)[0],
               R.BatchSvd(input=square)[0])
    case.fetch(R.BiasAddV1(value=x, bias=[1.0, 2, 3]), R.CheckNumericsV2(tensor=x, message="x"))


@golden()
def older_batch_norms(case):
    x = case.feed("x", case.floats(2, 3, 2, 4), (None, 3, 2, 4))
    vectors = {"scale": np.float32([1, 2, 3, 4]), "offset": np.float32([0, 1, -1, 2])}
    none = tf.constant([], tf.float32)
    inference = {"mean": np.float32([0.1, 0, -0.2, 0]), "variance": np.float32([1, 2, 0.5, 3]), "is_training": False}
    for norm, gradient, types in ((R.FusedBatchNorm, R.FusedBatchNormGrad, {}),
                                  (R.FusedBatchNormV2, R.FusedBatchNormGradV2, {})):
        y = norm(x=x, **vectors, mean=none, variance=none, epsilon=0.01, is_training=True)
        case.fetch(*y[:3], norm(x=x, **vectors, **inference, epsilon=0.01)[0])
        case.fetch(*gradient(y_backprop=x * 0.5, x=x, scale=vectors["scale"], reserve_space_1=y[3], reserve_space_2=y[4],
                             epsilon=0.01)[:3])


@golden(steps=2)
def functions_with_state(case):
    """Calls whose functions change variables."""
    tf1.enable_control_flow_v2()
    x = case.feed("x", case.floats(3), (None,))
    which = case.feed("which", np.int32(1))
    total = tf1.get_variable("total", initializer=np.float32(1), use_resource=True)

    @tf.function
    def add(y):
        return total.assign_add(tf.reduce_sum(y)) * 2

    called = add(x)
    with tf1.control_dependencies([called]):
        chosen = tf.cond(which > 0, lambda: total.assign_sub(x[0]) + 0, lambda: total.assign(7.0) + 0)
    with tf1.control_dependencies([chosen]):
        switched = tf.switch_case(which, [lambda: total.assign(3.0) + 0, lambda: total.assign_add(x[1]) + 0])
    with tf1.control_dependencies([switched]):
        case.fetch(called, chosen, switched, tf.identity(total.read_value()))


@golden(steps=2)
def calls_in_order(case):
    """Calls that wait for one another, of functions that read their arguments first."""
    x = case.feed("x", case.floats(3), (None,))
    total = tf1.get_variable("total", initializer=np.float32([1, 2, 3]), use_resource=True)
    count = tf1.get_variable("count", initializer=np.float32(0), use_resource=True)

    @tf.function
    def step(y):
        loss = tf.reduce_sum(total * y) + count
        total.assign_sub(0.1 * y * loss)
        count.assign_add(1.0)
        return loss

    @tf.function
    def steps(y):
        return [step(y) for _ in range(3)]

    first = steps(x)
    with tf1.control_dependencies([first[2]]):
        halved, counted = total.assign(total / 2), count.assign_add(10.0)
    with tf1.control_dependencies([halved, counted]):
        case.fetch(*first, step(x))


@golden(steps=2)
def references_in_a_loop(case):
    """A reference goes through the control flow of a loop, which changes what it refers to."""
    kept = R.Variable(shape=(2,), dtype=tf.float32, shared_name="kept")
    start = R.Assign(ref=kept, value=[1.0, 2.0])
    with tf1.control_dependencies([start]):
        entered = R.RefEnter(data=kept, frame_name="loop")
        count = R.Enter(data=np.int32(0), frame_name="loop")
        # The back edges are made when their ends are there.
        merged, number = R.RefMerge(inputs=[entered, entered]).output, R.Merge(inputs=[count, count]).output
    going = R.LoopCond(input=number < R.Enter(data=np.int32(3), frame_name="loop", is_constant=True))
    out, inside = R.RefSwitch(data=merged, pred=going)
    done, more = R.Switch(data=number, pred=going)
    changed = R.AssignAdd(ref=inside, value=R.Enter(data=[0.5, -1.0], frame_name="loop", is_constant=True))
    merged.op._update_input(1, R.RefNextIteration(data=changed))
    number.op._update_input(1, R.NextIteration(data=more + R.Enter(data=np.int32(1), frame_name="loop", is_constant=True)))
    left = R.RefExit(data=out)
    case.fetch(tf.negative(left), R.Exit(data=done))


@golden()
def batched_calls(case):
    """Calls that TensorFlow gathers to batches."""
    x = case.feed("x", case.floats(4, 3), (None, 3))
    scale = tf.constant([1.0, 2.0, 3.0])

    @tf.nondifferentiable_batch_function(1, 8, 1000)
    def scaled(y):
        return y * scale, tf.reduce_sum(y, 1)

    case.fetch(*scaled(x))


@golden(tolerance=1e-4)
def padded_convolutions(case):
    """Convolutions of images that the same node pads, or resizes and pads."""
    x = case.feed("x", case.floats(1, 6, 7, 3))  # of several images TensorFlow computes the first alone
    filters = case.floats(3, 3, 3, 4, seed=2)
    paddings = tf.constant([[0, 0], [1, 2], [2, 0], [0, 0]])
    for mode, stride, padding in (("REFLECT", 1, "VALID"), ("SYMMETRIC", 2, "SAME")):
        options = {"paddings": paddings, "mode": mode, "strides": [1, stride, stride, 1], "padding": padding}
        case.fetch(R.FusedPadConv2D(input=x, filter=filters, **options))
        for dtype in (tf.float32, tf.float64):
            convolved = R.FusedResizeAndPadConv2D(input=tf.cast(x, dtype), filter=tf.cast(filters, dtype), size=[9, 11],
                                                  resize_align_corners=stride == 1, **options)
            case.fetch(convolved)


@golden()
def sequences_by_attributes(case):
    """Records of sequences whose keys are attributes, a list of which may be missing."""
    def record(steps, tag):
        feature = lambda *x: tf.train.Feature(int64_list=tf.train.Int64List(value=x))  # noqa: E731
        words = [tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"w"] * i)) for i in range(steps)]
        lists = {"words": tf.train.FeatureList(feature=words)}
        if tag:
            lists["ids"] = tf.train.FeatureList(feature=[feature(i, -i) for i in range(steps)])
        context = {"few": feature(*range(steps)), "one": feature(tag)} if tag else {"few": feature(7)}
        return tf.train.SequenceExample(context=tf.train.Features(feature=context),
                                        feature_lists=tf.train.FeatureLists(feature_list=lists)).SerializeToString()

    records = case.feed("records", np.array([base64.urlsafe_b64encode(record(*r)) for r in ((3, 5), (0, 6), (2, 0))], dtype=object))
    parsed = R.ParseSequenceExample(
        serialized=tf.io.decode_base64(records),
        debug_name=["a", "b", "c"], context_dense_defaults=[np.int64(-3)],
        feature_list_dense_missing_assumed_empty=["ids"], context_sparse_keys=["few"], context_dense_keys=["one"],
        feature_list_sparse_keys=["words"], feature_list_dense_keys=["ids"], context_sparse_types=[tf.int64],
        context_dense_shapes=[[]], feature_list_sparse_types=[tf.string], feature_list_dense_types=[tf.int64],
        feature_list_dense_shapes=[[2]], Ncontext_sparse=1, Ncontext_dense=1, Nfeature_list_sparse=1, Nfeature_list_dense=1)
    case.fetch(*[tf.strings.length(t) if t.dtype == tf.string else t for part in parsed for t in part])


@golden()
def anonymous_tables(case):
    """Tables without a name, filled and read in a step."""
    keys = case.feed("keys", np.array([b"a", b"z", b"b"], dtype=object))
    fixed = R.AnonymousHashTable(key_dtype=tf.string, value_dtype=tf.int64)
    with tf1.control_dependencies([R.LookupTableImportV2(table_handle=fixed, keys=["a", "b"], values=np.int64([1, 2]))]):
        case.fetch(R.LookupTableFindV2(table_handle=fixed, keys=keys, default_value=np.int64(-1)))
    tables = [R.AnonymousMutableHashTable(key_dtype=tf.string, value_dtype=tf.float32),
              R.AnonymousMutableHashTableOfTensors(key_dtype=tf.string, value_dtype=tf.float32, value_shape=[2]),
              R.AnonymousMutableDenseHashTable(empty_key="", deleted_key="-", value_dtype=tf.float32, value_shape=[2])]
    for table, shape in zip(tables, ([], [2], [2])):
        values = tf.reshape(tf.range(3 * (shape or [1])[0], dtype=tf.float32), [3] + shape)
        with tf1.control_dependencies([R.LookupTableInsertV2(table_handle=table, keys=["b", "c", "a"], values=values)]):
            case.fetch(R.LookupTableFindV2(table_handle=table, keys=keys, default_value=tf.fill(shape, -1.0)),
                       R.LookupTableSizeV2(table_handle=table), tf.negative(R.Snapshot(input=values)))


@golden()
def tables_of_datasets(case):
    """Tables that datasets fill, one from within a function."""
    keys = case.feed("keys", np.array([b"a", b"z", b"c"], dtype=object))
    words = tf.data.Dataset.from_tensor_slices([b"a", b"b", b"c"]).enumerate(3).map(lambda i, word: (word, i * i))
    table = R.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="words")
    fill = R.InitializeTableFromDataset(table_handle=table, dataset=words._variant_tensor)
    with tf1.control_dependencies([fill]):
        case.fetch(R.LookupTableFindV2(table_handle=table, keys=keys, default_value=np.int64(-1)),
                   R.LookupTableSizeV2(table_handle=table))
    numbers = R.HashTableV2(key_dtype=tf.int64, value_dtype=tf.float32, shared_name="numbers")

    @tf.function
    def filled(handle):
        pairs = tf.data.Dataset.range(5).map(lambda i: (i, tf.cast(i, tf.float32) / 4))
        R.InitializeTableFromDataset(table_handle=tf.identity(handle), dataset=pairs._variant_tensor)
        return tf.constant(1.0)

    with tf1.control_dependencies([filled(numbers)]):
        case.fetch(R.LookupTableFindV2(table_handle=numbers, keys=np.int64([4, 7]), default_value=np.float32(-1)))
