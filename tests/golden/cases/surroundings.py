# SPDX-License-Identifier: Apache-2.0
"""What surrounds training: readers of files, barriers, mutexes, sparse accumulators, checkpoints, patterns."""
import os
import tempfile

import numpy as np
from tensorflow.python.ops import data_flow_ops
from tensorflow.python.training import saver as saver_module
from tensorflow.python.training.saving import saveable_object_util

from make import golden, tf, tf1
from strings import TEXTS, feed_texts, fetch_text


def tfrecords(*records):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        with tf.io.TFRecordWriter(path) as writer:
            for record in records:
                writer.write(record)
        with open(path, "rb") as file:
            return file.read()


FILES = {"a.txt": b"one\r\ntwo\n\nfo\rur", "b.txt": b"", "c.txt": b"header\nlast\n", "d.rec": tfrecords(b"x" * 9, b"", b"yz"),
         "e.rec": tfrecords(b"w")}


def write_files(folder):
    """Each file by a constant of its own: a feed would lose zeros at its end."""
    return [tf.io.write_file(tf.strings.join([folder, "/", name]), bytes) for name, bytes in FILES.items()]


READERS = {
    "TextLineReader": ({}, "abc"),
    "TextLineReader skip": ({"skip_header_lines": 1}, "abcabc"),
    "FixedLengthRecordReader": ({"record_bytes": 4}, "abca"),
    "FixedLengthRecordReader hop": ({"record_bytes": 4, "header_bytes": 1, "footer_bytes": 2, "hop_bytes": 3}, "aca"),
    "TFRecordReader": ({}, "dede"),
    "WholeFileReader": ({}, "abcd"),
    "IdentityReader": ({}, "abcd"),
}


@golden(steps=2)
def readers(case):
    """Each kind of reader takes names from a queue, one record and several at a time, past the ends of files."""
    folder = case.directory("folder")
    raw = lambda op, **inputs: getattr(tf.raw_ops, op + "V2")(**inputs)  # noqa: E731
    written = write_files(folder)
    for kind, (attrs, letters) in READERS.items():
        queue = raw("FIFOQueue", component_types=[tf.string], shapes=[()], shared_name=kind)
        reader = raw(kind.split()[0], shared_name=kind, **attrs)
        names = [name for letter in letters for name in FILES if name[0] == letter]
        last = written + [raw("QueueEnqueueMany", handle=queue, components=[tf.strings.join([folder, "/", names])])]
        for count in (None, 2, 5, None):
            with tf1.control_dependencies(last):
                if count is None:
                    keys, values = raw("ReaderRead", reader_handle=reader, queue_handle=queue)
                else:
                    keys, values = raw("ReaderReadUpTo", reader_handle=reader, queue_handle=queue, num_records=count)
            fetch_text(case, tf.strings.regex_replace(keys, ".*/", ""), tf.strings.regex_replace(values, ".*/", ""))
            last = [keys]
        with tf1.control_dependencies(last):
            counts = [raw("ReaderNumRecordsProduced", reader_handle=reader),
                      raw("ReaderNumWorkUnitsCompleted", reader_handle=reader)]
        with tf1.control_dependencies(counts):
            case.target(raw("ReaderReset", reader_handle=reader))
        case.fetch(*counts)


@golden(steps=2)
def barriers(case):
    """Elements become complete in another order than their keys came."""
    values = case.feed("values", case.floats(4, 2))
    barrier = data_flow_ops.Barrier((tf.float32, tf.int32), shapes=((2,), ()))
    first = barrier.insert_many(0, ["a", "b", "c", "d"], values)
    with tf1.control_dependencies([first]):
        second = barrier.insert_many(1, ["c", "a", "d"], [3, 1, 4])
    with tf1.control_dependencies([second]):
        sizes = [barrier.ready_size(), barrier.incomplete_size()]
    with tf1.control_dependencies(sizes):
        indices, keys, (x, n) = barrier.take_many(2)
    with tf1.control_dependencies([indices]):
        third = barrier.insert_many(1, ["b"], [2])
    with tf1.control_dependencies([third]):
        rest, late, (y, m) = barrier.take_many(2)
    fetch_text(case, keys, late)
    case.fetch(*sizes, indices, x, n, rest, y, m)


@golden(steps=3)
def critical_sections(case):
    """Two sections of one mutex, which add to a variable by reading and then assigning it."""
    v = case.variable("v", value=1.0)
    section = tf.CriticalSection()

    def add(by):
        with tf1.control_dependencies([v.assign(v.read_value() + by)]):
            return v.read_value()

    one, two = section.execute(lambda: add(1.0)), section.execute(lambda: add(2.0))
    case.fetch_after(tf.group(one, two), v)


@golden(steps=2)
def accumulators(case):
    """Dense and sparse gradients, their means and sums; the names of ops are those of older graphs."""
    grads, rows = case.feed("grads", case.floats(3, 4)), case.feed("rows", case.floats(3, 2, 2))
    raw = tf.raw_ops
    for reduction in ("MEAN", "SUM"):
        dense = raw.ConditionalAccumulator(dtype=tf.float32, shape=[4], reduction_type=reduction)
        last = [raw.AccumulatorApplyGradient(handle=dense, local_step=tf.constant(9, tf.int64), gradient=grads[0])]
        for i in (1, 2):  # one after the other: sums of floats depend on the order
            with tf1.control_dependencies(last):
                last = [raw.AccumulatorApplyGradient(handle=dense, local_step=tf.constant(9, tf.int64), gradient=grads[i])]
        with tf1.control_dependencies(last):
            counted = raw.AccumulatorNumAccumulated(handle=dense)
        with tf1.control_dependencies([counted]):
            case.fetch(counted, raw.AccumulatorTakeGradient(handle=dense, num_required=2, dtype=tf.float32))
        for shape in ([6, 2], [None, 2]):
            sparse = tf1.SparseConditionalAccumulator(tf.float32, shape=shape, reduction_type=reduction)
            last = [sparse.set_global_step(tf.constant(4, tf.int64))]
            for step, indices, gradient in ((4, [1, 3], rows[0]), (3, [0, 1], rows[1]), (5, [0, 3], rows[2])):
                with tf1.control_dependencies(last):
                    last = [sparse.apply_grad(indices, gradient, [6, 2] if shape[0] else None, local_step=step)]
            with tf1.control_dependencies(last):
                counted = sparse.num_accumulated()
            with tf1.control_dependencies([counted]):
                case.fetch(counted, *sparse.take_grad(2))


@golden(steps=2)
def patterns(case):
    x = feed_texts(case, TEXTS[:-1] + [b"a.b", b"2024-01-31"])
    date, dot = case.feed("date", np.array(rb"(\d+)-(\d+)-(\d+)")), case.feed("dot", np.array(rb"\3.\2.\1"))
    replace = tf.strings.regex_replace
    fetch_text(case, replace(x, date, dot), replace(x, "[aeiou]", ""), replace(x, "[aeiou]", r"<\0>", replace_global=False),
               replace(x, "^", "> "), replace(x, "x*", "-"), replace(x, date, "", replace_global=False))
    case.fetch(tf.strings.regex_full_match(x, date), tf.strings.regex_full_match(x, "[a-z]*"),
               tf.strings.regex_full_match(x, "(?i)HELLO.*"))


@golden(steps=2)
def checkpoints(case):
    """The ops of tf.compat.v1.train.Saver: shards are saved and merged, variables changed and restored."""
    folder = case.directory("folder")
    v, w = case.variable("v", 3, 2), case.variable("w", 2, value=5.0)
    builder = saver_module.BulkSaverBuilder()
    saveables = saveable_object_util.validate_and_slice_inputs({"v": v, "w": w})
    prefix = tf.strings.join([folder, "/model"])
    saved = builder._AddShardedSaveOpsForV2(prefix, [("/cpu:0", saveables[:1]), ("/cpu:0", saveables[1:])])
    with tf1.control_dependencies([saved]):
        changed = tf.group(v.assign_add(v + 1.0), w.assign_sub([1.0, 2.0]))
    with tf1.control_dependencies([changed]):
        between = [tf.negative(v.read_value()), tf.negative(w.read_value())]
    with tf1.control_dependencies(between):
        restored = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["w", "v"], shape_and_slices=["", ""],
                                        dtypes=[tf.float32, tf.float32])
        found = tf.io.matching_files(tf.strings.join([folder, "/model*_temp*"]))
    case.fetch(*between, *restored, tf.shape(found))


@golden()
def files(case):
    """Files that are read whole, names of shards, and tensors saved and restored by the ops of the first version."""
    R = tf.raw_ops
    folder = case.directory("folder")
    name = lambda end: tf.strings.join([folder, end])  # noqa: E731
    with tf1.control_dependencies([tf.io.write_file(name("/a"), "some bytes")]):
        fetch_text(case, R.ReadFile(filename=name("/a")))
    fetch_text(case, R.ShardedFilespec(basename="model", num_shards=12))
    x = case.feed("x", case.floats(4, 3), (4, 3))
    counts = case.feed("counts", np.int64([7, 8]))
    with tf1.control_dependencies([R.Save(filename=name("/all"), tensor_names=["x", "counts"], data=[x, counts])]):
        case.fetch(R.Restore(file_pattern=name("/all"), tensor_name="x", dt=tf.float32),
                   R.Restore(file_pattern=name("/all"), tensor_name="counts", dt=tf.int64),
                   R.RestoreSlice(file_pattern=name("/all"), tensor_name="x", shape_and_slice="4 3 1,2:0,3", dt=tf.float32))
    with tf1.control_dependencies([R.SaveSlices(filename=name("/parts"), tensor_names=["y", "y"], data=[x, x * 2],
                                                shapes_and_slices=["8 3 4,4:0,3", "8 3 0,4:0,3"])]):
        case.fetch(R.RestoreSlice(file_pattern=name("/parts"), tensor_name="y", shape_and_slice="8 3 3,2:1,2", dt=tf.float32))


@golden()
def closed_barrier(case):
    """A barrier that is closed gives what is complete and takes no new keys."""
    R = tf.raw_ops
    barrier = R.Barrier(component_types=[tf.float32], shapes=[(2,)], shared_name="closing")
    values = case.feed("values", case.floats(3, 2))
    filled = R.BarrierInsertMany(handle=barrier, keys=["a", "b", "c"], values=values, component_index=0)
    with tf1.control_dependencies([filled]):
        closed = R.BarrierClose(handle=barrier)
    with tf1.control_dependencies([closed]):
        indices, keys, taken = R.BarrierTakeMany(handle=barrier, num_elements=3, component_types=[tf.float32])
    fetch_text(case, keys)
    case.fetch(indices, *taken)
