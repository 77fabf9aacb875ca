#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden cases: graphs written with TensorFlow's 1.x API and what TensorFlow computes from them.

    python tests/golden/make.py [NAME...]     NAME may end in *

Each case becomes NAME.npz (the GraphDef, feeds, expected fetches) and NAME.json (how to run it), which golden_test.cpp
runs through the code of `troupe run`. This script needs TensorFlow (pip install tensorflow-cpu tf_keras), the tests
none. README.md here says how to add one.
"""
import fnmatch
import importlib.util
import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # the cells of tf.compat.v1.nn.rnn_cell are there
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
HERE = pathlib.Path(__file__).resolve().parent
MOST_BYTES = 48 << 10  # of one case
CASES = {}


def spread(shape, limit):
    """Values over [-limit, limit] by ops that round alike everywhere."""
    parts = tf.math.floormod(tf.cast(tf.range(int(np.prod(shape))), tf.float32) * np.float32(0.7548777), 1.0)
    return tf.reshape((parts - 0.5) * (2 * np.float32(limit)), shape)


def initializer(shape, dtype=tf.float32, partition_info=None):
    """For layers and cells that make their variables themselves: values spread as those of case.variable."""
    return spread(shape, np.sqrt(3.0 / max(1, int(np.prod(shape[:-1])))))


class Case:
    """What a case's function builds its graph with. Names of fetches and targets are those of the graph."""

    def __init__(self, name):
        self.name = name
        self.feeds, self.fetches, self.targets, self.directories = {}, [], [], []

    def feed(self, name, value, shape=None):
        """A placeholder and what is fed to it; `shape` where it is not the value's."""
        value = np.asarray(value)
        x = tf1.placeholder(value.dtype, value.shape if shape is None else shape, name)
        self.feeds[x.name] = value
        return x

    def as_of(self, producer):
        """Gives the graph the version of an older TensorFlow, which has ops that were taken out since."""
        old = tf1.GraphDef()
        old.versions.producer = producer
        tf1.import_graph_def(old)  # the graph's version is the lowest of those that it is made of

    def directory(self, name):
        """A placeholder that every run feeds with the path of a directory of its own, empty at first."""
        x = tf1.placeholder(tf.string, (), name)
        self.directories.append(x.name)
        return x

    def fetch(self, *tensors):
        self.fetches += [t if isinstance(t, str) else t.name for t in tensors]

    def fetch_with_gradients(self, ys, xs):
        """The results, and the gradients of sums of them with different weights."""
        weights = [tf.reshape(tf.cast(tf.range(tf.size(y)), y.dtype) * 0.25 - 1, tf.shape(y)) for y in ys]
        gradients = tf1.gradients(ys, xs, weights)
        self.fetch(*[tf.identity(t) for t in ys + [g for g in gradients if g is not None]])

    def fetch_after(self, operation, *variables):
        """The negatives of the variables once `operation` has run: their identities may still change."""
        with tf1.control_dependencies([operation]):
            self.fetch(*[tf.negative(v.read_value(), name=v.op.name + "_after") for v in variables])

    def target(self, *operations):
        self.targets += [o.op.name if isinstance(o, tf.Tensor) else o.name for o in operations]

    def floats(self, *shape, low=-1.0, high=1.0, seed=1):
        """Random float32 values, the same in every run."""
        return np.random.RandomState(seed).uniform(low, high, shape).astype(np.float32)

    def ints(self, *shape, high, seed=1, dtype=np.int32):
        return np.random.RandomState(seed).randint(0, high, shape).astype(dtype)

    def variable(self, name, *shape, scale=None, value=None, resource=True, trainable=True):
        """A float32 variable. Its values are spread over [-scale, scale] by ops that round alike everywhere, so that
        large ones take no place in the file; or all are `value`."""
        if value is not None:
            initial = lambda: tf.fill(shape, np.float32(value))  # noqa: E731
        else:
            initial = lambda: spread(shape, scale or np.sqrt(3.0 / max(1, int(np.prod(shape[:-1])))))  # noqa: E731
        return tf1.get_variable(name, initializer=initial, dtype=tf.float32, use_resource=resource,
                                trainable=trainable)


def golden(name=None, steps=1, tolerance=1e-5, judge=None, **arguments):
    """Decorates a function f(case, **arguments) that builds a graph.
    tolerance: see relative_error in golden_test.cpp; at most 1e-5 for element-wise ops, 1e-4 after products of matrices.
    judge: arguments in place of some of `arguments` for the graph that TensorFlow runs, where it cannot run the one
    wanted (its CPU kernels have no NCHW)."""

    def add(function):
        key = name or function.__name__
        if key in CASES:
            raise SystemExit(f"two cases are called {key}")
        CASES[key] = (function, steps, tolerance, judge, arguments)
        return function

    return add


def build(name, arguments):
    """The case, its graph, and the nodes that initialise it."""
    tf1.disable_control_flow_v2()  # a case may ask for the other
    graph = tf1.Graph()
    with graph.as_default():
        tf1.set_random_seed(1)
        case = Case(name)
        CASES[name][0](case, **arguments)
        init = []
        if tf1.global_variables():
            init.append(tf1.global_variables_initializer().name)
        if tf1.local_variables():
            init.append(tf1.local_variables_initializer().name)
        if tf1.get_collection(tf1.GraphKeys.TABLE_INITIALIZERS):
            init.append(tf1.tables_initializer().name)
    return case, graph, init


def make(name):
    _, steps, tolerance, judge, arguments = CASES[name]
    case, graph, init = build(name, arguments)
    ends = init + case.targets + [f.split(":")[0] for f in case.fetches]
    definition = tf1.graph_util.extract_sub_graph(graph.as_graph_def(), ends)
    fetches, targets = case.fetches, case.targets
    if judge:  # the same graph but for some names
        judged, graph, _ = build(name, {**arguments, **judge})
        fetches, targets = judged.fetches, judged.targets
    with tempfile.TemporaryDirectory() as directory, tf1.Session(
            graph=graph, config=tf1.ConfigProto(inter_op_parallelism_threads=1)) as session:
        feeds = {**case.feeds, **{name: directory for name in case.directories}}
        session.run(init, feeds)
        run = [session.run([fetches, targets], feeds)[0] for _ in range(steps)]
    arrays = {"graph": np.frombuffer(definition.SerializeToString(deterministic=True), np.uint8)}
    arrays |= {f"feed {key}": as_bytes(value) for key, value in case.feeds.items()}
    arrays |= {f"expect {key}": as_bytes(np.stack([r[i] for r in run])) for i, key in enumerate(case.fetches)}
    path = HERE / f"{name}.npz"
    np.savez_compressed(path, **arrays)
    how = {"init": init, "steps": steps, "fetches": case.fetches, "targets": case.targets, "tolerance": tolerance}
    if case.directories:
        how["directories"] = case.directories
    (HERE / f"{name}.json").write_text(json.dumps(how) + "\n")
    size = path.stat().st_size
    print(f"{name}: {size} bytes, {len(definition.node)} nodes")
    if size > MOST_BYTES:
        raise SystemExit(f"{name} has {size} bytes, more than {MOST_BYTES}")


def as_bytes(value):
    """Strings as NumPy's fixed-width bytes."""
    return value.astype("S") if value.dtype == object else value


def main():
    tf1.logging.set_verbosity(tf1.logging.ERROR)
    tf1.disable_eager_execution()
    sys.modules["make"] = sys.modules["__main__"]
    for path in sorted((HERE / "cases").glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[path.stem])
    patterns = sys.argv[1:] or ["*"]
    names = [n for n in sorted(CASES) if any(fnmatch.fnmatch(n, p) for p in patterns)]
    if not names:
        raise SystemExit(f"no case is called {' or '.join(patterns)}")
    for name in names:
        make(name)


if __name__ == "__main__":
    main()
