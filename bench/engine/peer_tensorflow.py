# SPDX-License-Identifier: Apache-2.0
# TensorFlow's side of bench_engine's loop: peer_tensorflow.py [ITERATIONS] prints nanoseconds an iteration of a while
# loop that counts, in a graph of the 1.x API and in a tf.function; medians of five runs.
import argparse
import statistics
import time

parser = argparse.ArgumentParser(description="Times a while loop that counts; prints ns an iteration of the 1.x API's "
                                 "loop and of tf.function's.")
parser.add_argument("iterations", nargs="?", type=int, default=1_000_000)
count = float(parser.parse_args().iterations)
import tensorflow as tf

tf1 = tf.compat.v1


def loop(limit):
    return tf1.while_loop(lambda x: tf.less(x, limit), lambda x: [x + 1.0], [tf.constant(0.0)])


def median_ns(run):
    run()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e9 / count


tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
with tf.Graph().as_default():
    tf1.disable_control_flow_v2()
    limit = tf1.placeholder(tf.float32, ())
    last = loop(limit)
    with tf1.Session(config=tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)) as session:
        run = session.make_callable(last, [limit])
        print(median_ns(lambda: run(count)))
function = tf.function(loop)
print(median_ns(lambda: tf.nest.flatten(function(tf.constant(count)))[0].numpy()))
