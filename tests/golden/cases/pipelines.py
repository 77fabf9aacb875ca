# SPDX-License-Identifier: Apache-2.0
"""Datasets of tf.data in graphs, by what a step takes of them."""
import numpy as np
from tensorflow.python.data.ops import load_op, structured_function

from make import golden, tf, tf1

experimental = tf.data.experimental


def taken(dataset, values=lambda x: x):
    """All elements, one after another, as one vector of int64."""
    start = tf.zeros([0], tf.int64)
    return dataset.reduce(start, lambda all, *x: tf.concat([all, tf.reshape(tf.cast(values(*x), tf.int64), [-1])], 0))


@golden()
def datasets_ahead(case):
    """Maps and interleaves with several elements at work, prefetches in the middle."""
    numbers = tf.data.Dataset.range(case.feed("n", np.int64(12)))
    square, more = (lambda x: x * x), (lambda x: x + 1)
    pipeline = numbers.map(square, num_parallel_calls=4).prefetch(2).filter(lambda x: x % 3 != 1)
    case.fetch(taken(pipeline.map(more, num_parallel_calls=2).batch(3).prefetch(1).unbatch().repeat(2)))
    for calls in (1, 2, 3):
        inner = lambda i: tf.data.Dataset.range(i).map(lambda j: 10 * i + j, num_parallel_calls=calls).prefetch(2)
        case.fetch(taken(numbers.interleave(inner, cycle_length=3, block_length=2, num_parallel_calls=calls)))
    case.fetch(taken(numbers.apply(experimental.map_and_batch(square, 5, num_parallel_calls=3))))
    nested = lambda x: tf.data.Dataset.range(x).map(square, num_parallel_calls=2).reduce(np.int64(0), tf.add)
    case.fetch(taken(numbers.map(nested, num_parallel_calls=3)))


@golden()
def datasets_regrouped(case):
    """Batches of other sizes and of sparse rows, one element for each key, lists."""
    numbers = tf.data.Dataset.range(case.feed("n", np.int64(14)))
    case.fetch(taken(numbers.batch(6).rebatch([3, 1, 4]), tf.shape), taken(numbers.batch(5).rebatch(4, True)))
    rows = numbers.map(lambda x: tf.range(x % 5)).apply(experimental.dense_to_sparse_batch(4, [6]))
    case.fetch(taken(rows, tf.sparse.to_dense))
    reducer = experimental.Reducer(lambda key: (key, np.int64(1)), lambda state, x: (state[0] + x, state[1] * 2),
                                   lambda total, count: total * 1000 + count)
    case.fetch(taken(numbers.apply(experimental.group_by_reducer(lambda x: 2 - x % 3, reducer))))
    listed = experimental.from_list([{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}])
    case.fetch(taken(listed, lambda x: x["a"] * 10 + x["b"]))


@golden()
def datasets_parsed(case):
    """Batches of records to dense, sparse and ragged features."""
    def record(i):
        feature = {"few": tf.train.Feature(int64_list=tf.train.Int64List(value=range(i))),
                   "one": tf.train.Feature(int64_list=tf.train.Int64List(value=[i * i]))}
        if i != 1:
            feature["two"] = tf.train.Feature(float_list=tf.train.FloatList(value=[i, 0.5]))
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    records = tf.data.Dataset.from_tensor_slices([record(i) for i in range(5)]).batch(3)
    features = {"one": tf.io.FixedLenFeature([], tf.int64), "two": tf.io.FixedLenFeature([2], tf.float32, [7.0, 8.0]),
                "few": tf.io.VarLenFeature(tf.int64)}
    parsed = records.apply(experimental.parse_example_dataset(features, num_parallel_calls=2))
    case.fetch(taken(parsed, lambda x: tf.sparse.to_dense(x["few"])), taken(parsed, lambda x: x["one"]),
               taken(parsed, lambda x: x["two"] * 2))
    features["few"] = tf.io.RaggedFeature(tf.int64)
    parsed = records.apply(experimental.parse_example_dataset(features))
    case.fetch(taken(parsed, lambda x: x["few"].to_tensor(-1)))


@golden()
def datasets_of_csv(case):
    """Records between commas: quotes, ends of lines, missing fields, chosen columns, a header for each of two files."""
    folder = case.directory("folder")
    paths = tf.strings.join([[folder, folder], ["/a", "/b"]])
    texts = ('x,"y\n1",z,w\r\n1,"two ""2"" x",0.5,\n-3,,NA,"a\r\nb"\r7,"",1e3,"c,d"', "h,h,h,h\n\n" + "8,e,-.25,f\n")
    writes = [tf.io.write_file(paths[0], texts[0]), tf.io.write_file(paths[1], texts[1].replace("\n\n", "\n"))]
    with tf1.control_dependencies(writes):
        every = experimental.CsvDataset(paths, [tf.int32, tf.constant(["none"]), tf.constant([9.5]), tf.constant([""])],
                                        header=True, na_value="NA")
        some = experimental.CsvDataset(paths, [tf.constant([-1], tf.int64), tf.constant([2.0], tf.float64)], header=True,
                                       select_cols=[0, 2], na_value="NA")
        others = experimental.CsvDataset(paths[1], [tf.string, tf.string], header=True, exclude_cols=[0, 2],
                                         use_quote_delim=False)
    text = lambda *x: tf.strings.unicode_decode(tf.strings.join(x, "|"), "UTF-8")
    every = every.map(lambda a, b, c, d: tf.concat([[a, tf.cast(c * 4, tf.int32)], text(b, d)], 0))
    case.fetch(taken(every), taken(some.map(lambda a, c: tf.cast(a, tf.float64) * 1000 + c * 4)), taken(others.map(text)))


@golden()
def datasets_saved(case):
    """Elements that are written into files, and read from there; some of the elements at random."""
    folder = case.directory("folder")
    numbers = tf.data.Dataset.range(case.feed("n", np.int64(7))).map(lambda x: (x * x, tf.strings.as_string(x)))
    value = lambda x, text: x * 10 + tf.strings.to_number(text, tf.int64)
    by_rest = lambda x, text: x % 3
    in_turns = lambda shards: shards.interleave(lambda shard: shard, cycle_length=2)
    for packing in ("", "GZIP", "SNAPPY"):
        path = tf.strings.join([folder, "/saved", packing])
        function = structured_function.StructuredFunctionWrapper(
            by_rest, "save()", input_structure=numbers.element_spec, add_to_graph=False).function
        function.add_to_graph(tf1.get_default_graph())
        save = tf.raw_ops.SaveDataset(input_dataset=numbers._variant_tensor, path=path, compression=packing,
                                      shard_func_other_args=function.captured_inputs, shard_func=function)
        with tf1.control_dependencies([save]):
            path = tf.identity(path)
        case.fetch(taken(load_op._LoadDataset(path, numbers.element_spec, packing, in_turns).map(value)))
        path = tf.strings.join([folder, "/snapshot", packing])
        snapshot = numbers.snapshot(path, packing or None, in_turns, by_rest).map(value)
        first = taken(snapshot)
        with tf1.control_dependencies([first]):
            again = tf.zeros([1], tf.int64)
            read = snapshot.reduce(again, lambda all, x: tf.concat([all, [x]], 0))
        case.fetch(tf.identity(first), read)
    for packing in ("", "GZIP"):
        path = tf.strings.join([folder, "/records", packing])
        write = experimental.TFRecordWriter(path, packing).write(numbers.map(lambda x, text: text))
        with tf1.control_dependencies([write]):
            path = tf.identity(path)
        case.fetch(taken(tf.data.TFRecordDataset(path, packing), lambda x: tf.strings.to_number(x, tf.int64)))
    for rate, seed, seed2 in [(0.5, 1, 2), (0.2, 5, 0), (1.0, 1, 1), (0.0, 1, 1)]:
        some = tf.raw_ops.SamplingDataset(input_dataset=tf.data.Dataset.range(40)._variant_tensor, rate=rate, seed=seed,
                                          seed2=seed2, output_types=[tf.int64], output_shapes=[[]])
        case.fetch(taken(experimental.from_variant(some, tf.TensorSpec([], tf.int64)).repeat(2)))
