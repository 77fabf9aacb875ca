# SPDX-License-Identifier: Apache-2.0
"""What surrounds a model: embeddings, initialisers, schedules, averages, metrics, losses, branches and loops."""
import numpy as np

from make import golden, tf, tf1


@golden("embedding_partitioned", steps=3, partitions=2)
@golden("embedding_combined", steps=3, partitions=1)
def embedding_bag(case, partitions):
    """Bags of words as a sparse tensor; a table in one or several parts."""
    parts = [case.variable(f"table{i}", 8 // partitions, 3, scale=1 + i) for i in range(partitions)]
    ids = tf.SparseTensor(np.int64([[0, 0], [0, 1], [1, 0], [2, 0], [2, 1], [2, 2]]),
                          case.feed("ids", np.int64([1, 5, 5, 0, 7, 1]), (6,)), np.int64([3, 3]))
    weights = tf.SparseTensor(ids.indices, case.feed("weights", case.floats(6, low=0.1), (6,)), ids.dense_shape)
    bags = [tf1.nn.embedding_lookup_sparse(parts, ids, weights, partition_strategy="div", combiner=c)
            for c in ("sum", "mean", "sqrtn")]
    loss = tf.add_n([tf.reduce_sum(tf.square(b - 0.5)) for b in bags])
    case.fetch(loss, *bags)
    case.target(tf1.train.MomentumOptimizer(0.05, 0.5).minimize(loss))


@golden(steps=3)
def embedding_safe(case):
    """Bags among which are empty ones and words without weight, in more than two dimensions."""
    table = case.variable("table", 6, 3, scale=1)
    ids = tf.SparseTensor(np.int64([[0, 1, 0], [0, 0, 1], [1, 0, 0], [1, 1, 0]]),
                          case.feed("ids", np.int64([1, -1, 5, 4]), (4,)), np.int64([2, 2, 2]))
    weights = tf.SparseTensor(ids.indices, case.feed("weights", np.float32([0.5, 1, 2, 0]), (4,)), ids.dense_shape)
    bags = [tf1.nn.safe_embedding_lookup_sparse(table, ids, weights, combiner="mean"),
            tf1.nn.safe_embedding_lookup_sparse(table, ids, combiner="sqrtn", default_id=2)]
    ordered = tf.sparse.reorder(tf.SparseTensor(ids.indices, table[:4, 0], ids.dense_shape))
    loss = tf.add_n([tf.reduce_sum(tf.square(b - 0.5)) for b in bags]) + tf.reduce_sum(ordered.values * [1.0, 2, 3, 4])
    case.fetch(loss, *bags)
    case.target(tf1.train.MomentumOptimizer(0.05, 0.5).minimize(loss))


@golden(steps=3, tolerance=1e-4)
def sampled_softmax(case):
    """Sampled softmax and noise-contrastive estimation, on candidates given."""
    x = case.feed("x", case.floats(4, 5), (None, 5))
    labels = case.feed("labels", np.int64([[1], [8], [3], [1]]), (None, 1))
    sampled = (tf.constant([3, 0, 7], tf.int64), tf.constant([[0.3], [0.2], [0.3], [0.3]]), tf.constant([0.3, 0.6, 0.1]))
    w, b = case.variable("w", 9, 5, scale=1), case.variable("b", 9, value=0.1)
    losses = [tf1.nn.sampled_softmax_loss(w, b, labels, x, 3, 9, sampled_values=sampled),
              tf1.nn.nce_loss(w, b, labels, x, 3, 9, sampled_values=sampled, remove_accidental_hits=True)]
    loss = tf.add_n([tf.reduce_mean(one) for one in losses])
    case.fetch(loss, *losses)
    case.target(tf1.train.AdagradOptimizer(0.1).minimize(loss))


@golden(steps=2)
def segments(case):
    """Sums and means of segments, and their gradients."""
    x = case.feed("x", case.floats(6, 3, low=0.2), (None, 3))
    ids = case.feed("ids", np.int32([0, 0, 1, 1, 1, 3]), (None,))
    mixed = case.feed("mixed", np.int32([2, 0, 2, 1, 0, 2]), (None,))
    rows = tf.constant([0, 2, 2, 5, 1, 4])
    parts = [f(x, ids) for f in (tf1.segment_sum, tf1.segment_mean, tf1.segment_max, tf1.segment_min, tf1.segment_prod)]
    parts += [f(x, mixed, 4) for f in (tf1.unsorted_segment_sum, tf1.unsorted_segment_mean, tf1.unsorted_segment_prod,
                                       tf1.unsorted_segment_sqrt_n)]
    parts += [f(x, mixed, 3) for f in (tf1.unsorted_segment_max, tf1.unsorted_segment_min)]
    parts += [f(x, rows, ids) for f in (tf1.sparse_segment_sum, tf1.sparse_segment_mean, tf1.sparse_segment_sqrt_n)]
    case.fetch(*parts, tf.gradients([tf.reduce_sum(p * p) for p in parts], x)[0])


@golden(steps=1, tolerance=1e-5)
def initializers(case):
    """Those whose values are told by their arguments, and the shapes and bounds of random ones."""
    some = {
        "zeros": tf1.zeros_initializer(), "ones": tf1.ones_initializer(), "constant": tf1.constant_initializer(0.5),
        "values": tf1.constant_initializer([[1, 2, 3], [4, 5, 6]]), "identity": tf1.initializers.identity(2.0),
    }
    for name, initializer in some.items():
        case.fetch(tf1.get_variable(name, (2, 3), initializer=initializer) + 0)
    random = {
        "uniform": (tf1.random_uniform_initializer(-1, 2, seed=3), -1, 2),
        "normal": (tf1.random_normal_initializer(1, 0.1, seed=3), 0, 2),
        "truncated": (tf1.truncated_normal_initializer(0, 1, seed=3), -2, 2),
        "scaled": (tf1.variance_scaling_initializer(2.0, "fan_in", "truncated_normal", seed=3), -4, 4),
        "glorot": (tf1.glorot_uniform_initializer(seed=3), -1, 1),
        "glorot_normal": (tf1.glorot_normal_initializer(seed=3), -2, 2),
        "he": (tf1.initializers.he_normal(seed=3), -4, 4),
        "he_uniform": (tf1.initializers.he_uniform(seed=3), -4, 4),
        "lecun": (tf1.initializers.lecun_normal(seed=3), -4, 4),
    }
    for name, (initializer, low, high) in random.items():
        v = tf1.get_variable(name, (6, 5), initializer=initializer)
        inside = tf.reduce_all((v >= low) & (v <= high))
        moved = tf.greater(tf.math.reduce_std(v), 0.01)
        case.fetch(tf.shape(v), inside, moved)
    square = tf1.get_variable("orthogonal", (4, 4), initializer=tf1.orthogonal_initializer(seed=3))
    case.fetch(tf.round(tf.matmul(square, square, transpose_b=True) * 1000) + 0)


@golden("schedules", steps=6, resource=True)
@golden("schedules_ref", steps=6, resource=False)
def schedules(case, resource):
    """Learning rates that follow the global step."""
    step = tf1.get_variable("step", initializer=np.int64(0), use_resource=resource, trainable=False)
    now = step.read_value() + 0
    train = tf1.train
    rates = [
        train.exponential_decay(0.1, now, 3, 0.9), train.exponential_decay(0.1, now, 3, 0.9, staircase=True),
        train.piecewise_constant(now, [1, 3], [0.1, 0.05, 0.01]), train.polynomial_decay(0.1, now, 4, 0.01, power=2.0),
        train.polynomial_decay(0.1, now, 2, 0.01, cycle=True), train.natural_exp_decay(0.1, now, 2, 0.5),
        train.inverse_time_decay(0.1, now, 2, 0.5), train.cosine_decay(0.1, now, 4), train.linear_cosine_decay(0.1, now, 4),
        train.cosine_decay_restarts(0.1, now, 2),
    ]
    case.fetch(*rates)
    with tf1.control_dependencies(rates):
        case.target(tf1.assign_add(step, 1))


@golden("averages", steps=4, resource=True)
@golden("averages_ref", steps=4, resource=False)
def averages(case, resource):
    """Moving averages of variables and of a tensor, with and without the number of steps."""
    x = case.feed("x", case.floats(3))
    v = case.variable("v", 3, value=1, resource=resource)
    step = tf1.get_variable("step", initializer=np.int64(0), use_resource=resource, trainable=False)
    with tf1.control_dependencies([tf1.assign_add(v, x), tf1.assign_add(step, 1)]):
        plain = tf1.train.ExponentialMovingAverage(0.9)
        counted = tf1.train.ExponentialMovingAverage(0.99, num_updates=step.read_value(), zero_debias=False, name="Counted")
        both = tf.group(plain.apply([v]), counted.apply([v]))
    case.fetch_after(both, plain.average(v), counted.average(v))


@golden(steps=4)
def metrics(case):
    """Streaming metrics keep their counts in local variables."""
    labels = case.feed("labels", np.int64([1, 0, 1, 1, 0, 2]))
    wanted = tf.cast(labels, tf.float32)
    guess = case.feed("guess", np.int64([1, 1, 1, 0, 0, 2]))
    score = case.feed("score", np.float32([0.9, 0.4, 0.6, 0.3, 0.1, 0.8]))
    weights = tf.constant([1.0, 1, 0.5, 1, 2, 1])
    m = tf1.metrics
    some = [m.accuracy(labels, guess), m.accuracy(labels, guess, weights), m.mean(score, weights),
            m.mean_squared_error(wanted, score), m.mean_absolute_error(wanted, score),
            m.root_mean_squared_error(wanted, score), m.recall(labels > 0, guess > 0), m.precision(labels > 0, guess > 0),
            m.mean_iou(labels, guess, 3), m.auc(labels > 0, score, num_thresholds=7), m.true_positives(labels > 0, guess > 0),
            m.mean_tensor(score), m.percentage_below(score, 0.5),
            m.mean_per_class_accuracy(labels, guess, 3), m.recall_at_k(labels, tf.one_hot(guess, 3), 2)]
    for _, update in some:  # the values as they are now would be read while they are updated
        case.fetch(tf.identity(update))  # of some it is a variable yet to be read


@golden(tolerance=1e-5)
def losses(case):
    """tf.compat.v1.losses with weights, and their gradients."""
    x = case.feed("x", case.floats(4, 3), (None, 3))
    y = case.feed("y", case.floats(4, 3, low=0, seed=2), (None, 3))
    w = tf.constant([[1.0], [0], [2], [0.5]])
    some = [tf1.losses.mean_squared_error(y, x, w), tf1.losses.absolute_difference(y, x, w), tf1.losses.huber_loss(y, x, w, 0.3),
            tf1.losses.log_loss(y, tf.sigmoid(x), w), tf1.losses.hinge_loss(tf.round(y), x, w),
            tf1.losses.cosine_distance(y, x, axis=1), tf1.losses.sigmoid_cross_entropy(y, x, w),
            tf1.losses.softmax_cross_entropy(y, x, label_smoothing=0.1),
            tf1.losses.sparse_softmax_cross_entropy([0, 2, 1, 1], x), tf1.losses.mean_pairwise_squared_error(y, x)]
    total = tf1.losses.get_total_loss(add_regularization_losses=False)
    case.fetch(total, *some, *tf.gradients(total, x))


@golden("branches", steps=2, resource=True)
@golden("branches_ref", steps=2, resource=False)
def branches(case, resource):
    """cond and case, whose branches read and write variables."""
    x = case.feed("x", case.floats(3))
    v = case.variable("v", 3, value=1, resource=resource)
    count = tf1.get_variable("count", initializer=np.int32(0), use_resource=resource, trainable=False)
    with tf1.control_dependencies([tf1.assign_add(count, 1)]):
        n = count.read_value() + 0
    changed = tf1.cond(n > 1, lambda: tf.negative(tf1.assign_add(v, x)), lambda: tf.negative(v.read_value()) * 2)
    several = tf1.case([(n > 5, lambda: x), (n > 1, lambda: x * 2)], default=lambda: x - 1)
    chosen = tf1.cond(tf.reduce_sum(x) > 100, lambda: x * x, lambda: tf.exp(x))
    with tf1.control_dependencies([changed]):
        after = tf.negative(v.read_value())
    case.fetch(n, changed, several, chosen, after, tf.gradients(chosen, x)[0])


@golden(steps=2)
def loops(case):
    """while_loop: counters, nested loops, tensors that grow, variables read within."""
    x = case.feed("x", case.floats(3))
    v = case.variable("v", 3, value=2)
    n = case.feed("n", np.int32(5), ())
    power = tf1.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * x + v), (0, tf.ones(3)))
    nested = tf1.while_loop(
        lambda i, s: i < 3,
        lambda i, s: (i + 1, tf1.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t + tf.cast(j, tf.float32)), (0, s))[1]),
        (0, tf.reduce_sum(x)), parallel_iterations=1)
    grown = tf1.while_loop(lambda i, y: tf.shape(y)[0] < 7, lambda i, y: (i + 1, tf.concat([y, y[:2]], 0)), (0, x),
                           shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])))
    never = tf1.while_loop(lambda i: i < 0, lambda i: i - 1, (n,))
    case.fetch(*power, *nested, *grown, never)


# Optimizers that take complex numbers: slots, and scalars around the gradient.
COMPLEX_RULES = {
    "GradientDescent": ([], ["alpha"], []),
    "Momentum": (["accum"], ["lr"], ["momentum"]),
    "KerasMomentum": (["accum"], ["lr"], ["momentum"]),
    "Adam": (["m", "v"], ["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"], []),
    "Adagrad": (["accum"], ["lr"], []),
    "AdagradV2": (["accum"], ["lr", "epsilon"], []),
    "Adadelta": (["accum", "accum_update"], ["lr", "rho", "epsilon"], []),
    "RMSProp": (["ms", "mom"], ["lr", "rho", "momentum", "epsilon"], []),
    "CenteredRMSProp": (["mg", "ms", "mom"], ["lr", "rho", "momentum", "epsilon"], []),
}


@golden(steps=2)
def complex_training(case):
    """Updates of complex variables, whole and by rows."""
    gradient = tf.complex(case.feed("re", case.floats(3, 2)), case.feed("im", case.floats(3, 2, seed=2)))
    for rule, (slots, before, after) in COMPLEX_RULES.items():
        for sparse in (False, True):
            op = getattr(tf.raw_ops, f"Resource{'Sparse' if sparse else ''}Apply{rule}", None)
            if op is None or (sparse and rule in ("GradientDescent", "Adam")):
                continue
            variables = [tf1.get_variable(f"{rule}{sparse}_{name}", dtype=tf.complex64, use_resource=True,
                                          initializer=lambda v=value: tf.fill((3, 2), tf.constant(v, tf.complex64)))
                         for name, value in [("var", 1 + 0.5j)] + [(s, 0.4 + 0.1j * i) for i, s in enumerate(slots)]]
            given = {"var": variables[0].handle, **{s: v.handle for s, v in zip(slots, variables[1:])}}
            given |= {s: tf.constant(0.3 + 0.1 * i, tf.complex64) for i, s in enumerate(before + after)}
            given["delta" if rule == "GradientDescent" else "grad"] = gradient
            if sparse:
                given["indices"] = tf.constant([2, 0, 2])
            case.fetch_after(op(**given), *variables)
