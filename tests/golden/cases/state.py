# SPDX-License-Identifier: Apache-2.0
"""Embeddings with sparse gradients, variables that are read and written in order, queues."""
import numpy as np

from make import golden, tf, tf1
from optimizers import OPTIMIZERS

R = tf.raw_ops


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


@golden(steps=2)
def temporaries(case):
    """A variable of a step, as gradients were once added up in."""
    x = case.feed("x", case.floats(2, 3), (None, 3))
    temporary = tf.raw_ops.TemporaryVariable(shape=[2, 3], dtype=tf.float32, var_name="sum")
    first = tf1.assign(temporary, x)
    added = [tf1.assign_add(first, x * i) for i in range(1, 4)]
    with tf1.control_dependencies(added):
        case.fetch(tf.raw_ops.DestroyTemporaryVariable(ref=first, var_name="sum"))


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


@golden(steps=3)
def updates(case):
    """Optimizers that TensorFlow has as ops only, and what else is done to a variable by its handle."""
    grad = case.feed("grad", case.floats(4, 3))
    rate, beta, epsilon = 0.1, 0.9, 1e-3

    def variables(name, *starts):
        return [case.variable(f"{name}_{i}", 4, 3, **({"scale": 1} if s is None else {"value": s}))
                for i, s in enumerate(starts)]

    var, m, v = variables("ada_max", None, 0, 0)
    case.fetch_after(R.ResourceApplyAdaMax(var=var.handle, m=m.handle, v=v.handle, beta1_power=0.5, lr=rate, beta1=beta,
                                           beta2=0.99, epsilon=epsilon, grad=grad), var, m, v)
    var, m, v, highest = variables("amsgrad", None, 0, 0, 0)
    case.fetch_after(R.ResourceApplyAdamWithAmsgrad(
        var=var.handle, m=m.handle, v=v.handle, vhat=highest.handle, beta1_power=0.5, beta2_power=0.9, lr=rate, beta1=beta,
        beta2=0.99, epsilon=epsilon, grad=grad), var, m, v, highest)
    for op, base in (("ResourceApplyAddSign", {"alpha": 1.0}), ("ResourceApplyPowerSign", {"logbase": 1.0})):
        var, m = variables(op, None, 0.1)
        case.fetch_after(getattr(R, op)(var=var.handle, m=m.handle, lr=rate, sign_decay=0.7, beta=beta, grad=grad, **base),
                         var, m)
    (var,) = variables("slices", None)
    case.fetch_after(R.ResourceStridedSliceAssign(ref=var.handle, begin=[0, 0], end=[4, 2], strides=[3, 1],
                                                  value=grad[:2, :2]), var)
    for op in ("ResourceScatterNdMax", "ResourceScatterNdMin"):
        (var,) = variables(op, None)
        case.fetch_after(getattr(R, op)(ref=var.handle, indices=[[0, 1], [3, 0], [0, 1]], updates=grad[0]), var)
    for op in ("ResourceScatterNdAdd", "ResourceScatterNdSub"):
        flags = tf1.get_variable(op, initializer=np.array([True, False, True, False]), use_resource=True)
        scatter = getattr(R, op)(ref=flags.handle, indices=[[0], [1], [3], [3]], updates=[True, True, False, True])
        with tf1.control_dependencies([scatter]):
            case.fetch(flags.read_value())
    (var,) = variables("read", None)
    case.fetch(R.VariableShape(input=var.handle), R.VariableShape(input=var.handle, out_type=tf.int64),
               R.ResourceGatherNd(resource=var.handle, indices=[[1, 2], [0, 0]], dtype=tf.float32))
    case.target(R.DestroyResourceOp(resource=R.VarHandleOp(dtype=tf.float32, shape=(), shared_name="never"),
                                    ignore_lookup_error=True))
    count = tf1.get_variable("count", initializer=np.int64(3), use_resource=True)
    case.fetch(R.ResourceCountUpTo(resource=count.handle, limit=9, T=tf.int64))


@golden(steps=2)
def queues(case):
    """Queues that pad, that sort and that shuffle, and what is left when they close."""
    x = case.feed("x", case.floats(5, 2))
    padding = R.PaddingFIFOQueueV2(component_types=[tf.float32, tf.int32], shapes=[(None, 2), ()], shared_name="padding")
    last = []
    for i, rows in enumerate((2, 0, 3, 1)):
        with tf1.control_dependencies(last):
            last = [R.QueueEnqueueV2(handle=padding, components=[x[:rows], i])]
    with tf1.control_dependencies(last):
        wide = R.QueueDequeueManyV2(handle=padding, n=3, component_types=[tf.float32, tf.int32])
    with tf1.control_dependencies(wide):
        rest = R.QueueDequeueV2(handle=padding, component_types=[tf.float32, tf.int32])
    case.fetch(*wide, *rest)

    sorting = R.PriorityQueueV2(shapes=[(2,)], component_types=[tf.float32], shared_name="sorting")
    with tf1.control_dependencies([R.QueueEnqueueManyV2(handle=sorting, components=[np.int64([3, -1, 7, 3, 0]), x])]):
        least = R.QueueDequeueManyV2(handle=sorting, n=2, component_types=[tf.int64, tf.float32])
    with tf1.control_dependencies(least):
        others = R.QueueDequeueUpToV2(handle=sorting, n=3, component_types=[tf.int64, tf.float32])
    case.fetch(*least, others[0])

    shuffling = R.RandomShuffleQueueV2(component_types=[tf.float32], shapes=[(2,)], shared_name="shuffling")
    with tf1.control_dependencies([R.QueueEnqueueManyV2(handle=shuffling, components=[x])]):
        (mixed,) = R.QueueDequeueManyV2(handle=shuffling, n=5, component_types=[tf.float32])
    case.fetch(tf.sort(mixed, 0))


@golden(steps=3)
def shuffled_queue(case):
    """The order in which a queue with seeds is drawn from."""
    shuffling = tf1.RandomShuffleQueue(20, 0, [tf.int32], [[]], seed=3, shared_name="shuffled")
    with tf1.control_dependencies([shuffling.enqueue_many([case.feed("x", np.int32(range(11)))])]):
        mixed = shuffling.dequeue_many(7)
    with tf1.control_dependencies([mixed]):
        case.fetch(mixed, shuffling.dequeue_many(4))


@golden()
def closed_queue(case):
    closing = R.FIFOQueueV2(component_types=[tf.int32], shapes=[()], shared_name="closing")
    with tf1.control_dependencies([R.QueueEnqueueManyV2(handle=closing, components=[[4, 5, 6]])]):
        before = R.QueueIsClosedV2(handle=closing)
    with tf1.control_dependencies([before]):
        closed = R.QueueCloseV2(handle=closing)
    with tf1.control_dependencies([closed]):
        after = R.QueueIsClosedV2(handle=closing)
    case.fetch(before)
    with tf1.control_dependencies([after]):
        (left,) = R.QueueDequeueUpToV2(handle=closing, n=2, component_types=[tf.int32])
    case.fetch(after, left)


@golden(steps=2)
def lookup_tables(case):
    """Tables filled from tensors, from a file and by inserting; what they hold."""
    folder = case.directory("folder")
    keys = case.feed("keys", np.int64([4, 1, 9]), (None,))
    fixed = R.HashTableV2(key_dtype=tf.int64, value_dtype=tf.float32, shared_name="fixed")
    filled = R.InitializeTableV2(table_handle=fixed, keys=np.int64([1, 4, 5]), values=np.float32([0.5, 2, -1]))
    with tf1.control_dependencies([filled]):
        case.fetch(R.LookupTableFindV2(table_handle=fixed, keys=keys, default_value=np.float32(7)),
                   R.LookupTableSizeV2(table_handle=fixed))
    path = tf.strings.join([folder, "/words"])
    words = R.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64, shared_name="words")
    with tf1.control_dependencies([tf.io.write_file(path, "one\ntwo\nthree\n")]):
        read = R.InitializeTableFromTextFileV2(table_handle=words, filename=path, key_index=-2, value_index=-1)
    with tf1.control_dependencies([read]):
        case.fetch(R.LookupTableFindV2(table_handle=words, keys=["three", "none", "one"], default_value=np.int64(-1)))
    changing = R.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.float32, shared_name="changing")
    with tf1.control_dependencies([R.LookupTableInsertV2(table_handle=changing, keys=keys, values=np.float32([1, 2, 3]))]):
        size = R.LookupTableSizeV2(table_handle=changing)
        held, values = R.LookupTableExportV2(table_handle=changing, Tkeys=tf.int64, Tvalues=tf.float32)
    case.fetch(size, tf.sort(held), tf.gather(values, tf.argsort(held)))


@golden(steps=3)
def batches_of_sparse_tensors(case):
    """tf.train.batch of sparse tensors, whose queue carries the numbers of what a map keeps."""
    x = case.feed("x", np.float32([[0, 2, 4], [0, 0, 0], [1, 0, 0], [0, 0, -3]]), (None, 3))
    sparse = tf.sparse.from_dense(x)
    batch, labels = tf1.train.batch([sparse, x[:, 0]], 2, enqueue_many=True)
    (runner,) = tf1.get_collection(tf1.GraphKeys.QUEUE_RUNNERS)
    case.target(*runner.enqueue_ops)
    case.fetch(batch.indices, batch.values, batch.dense_shape, labels)
    for dtype in (tf.string, tf.int64):
        values = tf.cast(sparse.values, tf.int64)
        values = tf.as_string(values) if dtype == tf.string else values
        name = f"map_{dtype.name}"
        kept = R.AddSparseToTensorsMap(sparse_indices=sparse.indices, sparse_values=values, sparse_shape=sparse.dense_shape,
                                       shared_name=name)
        rows = R.AddManySparseToTensorsMap(sparse_indices=sparse.indices, sparse_values=values,
                                           sparse_shape=sparse.dense_shape, shared_name=name + "_rows")
        case.fetch(*R.TakeManySparseFromTensorsMap(sparse_handles=[kept], dtype=dtype, shared_name=name),
                   *R.TakeManySparseFromTensorsMap(sparse_handles=tf.gather(rows, [3, 0, 1]), dtype=dtype,
                                                   shared_name=name + "_rows"))


@golden(steps=3)
def staged(case):
    """A staging area: what a step puts in, the next one takes out."""
    x = case.feed("x", case.floats(3, 2))
    options = {"dtypes": [tf.float32, tf.int32], "shared_name": "area", "capacity": 4, "memory_limit": 1000}
    put = tf.raw_ops.Stage(values=[x * 2, tf.constant([1, 2])], shared_name="area", capacity=4, memory_limit=1000)
    with tf1.control_dependencies([put]):
        size = tf.raw_ops.StageSize(**options)
        first = tf.raw_ops.StagePeek(index=0, **options)
    with tf1.control_dependencies([size, *first]):
        taken = tf.raw_ops.Unstage(**options)
    with tf1.control_dependencies(taken):
        left = tf.raw_ops.StageSize(**options)
    case.fetch(size, *first, *[tf.identity(t) for t in taken], left)


@golden(steps=2)
def staged_by_keys(case):
    """Staging maps: components that come and go one by one, whole elements in the order of their keys."""
    x = case.feed("x", case.floats(3, 2))
    raw, both = tf.raw_ops, [tf.float32, tf.int32]
    number = lambda n: tf.constant(n, tf.int64)
    for prefix in ("Map", "OrderedMap"):
        op = lambda name, **inputs: getattr(raw, prefix + name)(shared_name=prefix, capacity=4, **inputs)
        whole = op("Stage", key=number(7), indices=[0, 1], values=[x * 2, tf.constant([1, 2])], dtypes=both)
        part = op("Stage", key=number(5), indices=[1], values=[tf.constant(3)], dtypes=both)
        with tf1.control_dependencies([whole, part]):
            sizes = op("Size", dtypes=both), op("IncompleteSize", dtypes=both)
            peeked = op("Peek", key=number(7), indices=[1], dtypes=[tf.int32])
        with tf1.control_dependencies([*sizes, *peeked]):
            rest = op("Stage", key=number(5), indices=[0], values=[x - 1], dtypes=both)
        with tf1.control_dependencies([rest]):
            first = op("Unstage", key=number(7), indices=[0], dtypes=[tf.float32])
        with tf1.control_dependencies(first):
            second = op("Unstage", key=number(7), indices=[1], dtypes=[tf.int32])
        with tf1.control_dependencies(second):
            key, values = op("UnstageNoKey", indices=[0, 1], dtypes=both)
        with tf1.control_dependencies([key]):
            left = op("Stage", key=number(1), indices=[0], values=[x], dtypes=both)
        with tf1.control_dependencies([left]):
            clear = op("Clear", dtypes=both)
        with tf1.control_dependencies([clear]):
            none = op("IncompleteSize", dtypes=both)
        case.fetch(*sizes, *peeked, *first, *second, key, *[tf.identity(v) for v in values], none)


@golden()
def gradients_of_functions(case):
    """SymbolicGradient, which calls the gradient of a function."""
    from tensorflow.python.framework import function
    from tensorflow.python.ops import functional_ops

    @function.Defun(tf.float32, tf.float32, func_name="two_values")
    def two_values(a, b):
        return a * a * b, tf.sin(b)

    two_values.add_to_graph(tf1.get_default_graph())
    x = case.feed("x", case.floats(4))
    y = x * 3
    case.fetch(*functional_ops.symbolic_gradient(input=[x, y, tf.exp(x), tf.fill([4], 2.0)], Tout=[tf.float32, tf.float32],
                                                 f=two_values))


@golden()
def warm_start(case):
    """Rows and columns of a checkpoint's matrix in the order of new vocabularies."""
    folder = case.directory("folder")
    paths = [tf.strings.join([folder, name]) for name in ("/new", "/old", "/weights")]
    matrix = case.feed("matrix", case.floats(5, 3))
    writes = [tf.io.write_file(paths[0], "e\nx\na\nnew\nc\n"), tf.io.write_file(paths[1], "a\nb\nc\r\nd\ne"),
              R.SaveV2(prefix=paths[2], tensor_names=["m"], shape_and_slices=[""], tensors=[matrix])]
    with tf1.control_dependencies(writes):
        for offset, count, size in ((0, 5, -1), (1, 3, 2), (5, 0, -1)):
            rows = R.GenerateVocabRemapping(new_vocab_file=paths[0], old_vocab_file=paths[1], new_vocab_offset=offset,
                                            num_new_vocab=count, old_vocab_size=size)
            case.fetch(rows.remapping, rows.num_present)
            for columns, most in (([], -1), ([2, -1, 0, -1], 2)):
                width = len(columns) or 3
                given = width * (count - rows.num_present) + (rows.num_present * 2 if columns else 0)
                case.fetch(R.LoadAndRemapMatrix(
                    ckpt_path=paths[2], old_tensor_name="m", row_remapping=rows.remapping,
                    col_remapping=tf.constant(columns, tf.int64), initializing_values=tf.cast(tf.range(given), tf.float32) + 5,
                    num_rows=count, num_cols=width, max_rows_in_memory=most))
