# SPDX-License-Identifier: Apache-2.0
"""Random ops: a graph's seeds give TensorFlow's numbers, in each run those that follow the last run's."""
import numpy as np

from make import golden, tf, tf1

R = tf.raw_ops
FLOATS = (tf.float32, tf.float64, tf.float16)


def narrow(x):
    return tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x


@golden(steps=3)
def seeded(case):
    shape = case.feed("shape", np.int32([7, 3]), (None,))
    for dtype in FLOATS + (tf.bfloat16,):
        for op in (R.RandomUniform, R.RandomStandardNormal, R.TruncatedNormal):
            case.fetch(narrow(op(shape=shape, dtype=dtype, seed=87654321, seed2=5)))
    for dtype in (tf.int32, tf.int64):
        least = tf.constant(-3, dtype)
        case.fetch(R.RandomUniformInt(shape=shape, minval=least, maxval=tf.constant(1000, dtype), seed=0, seed2=9))
    x = case.feed("x", np.arange(26, dtype=np.float32).reshape(13, 2), (None, 2))
    case.fetch(R.RandomShuffle(value=x, seed=3), R.RandomShuffle(value=x[:, 0], seed=3, seed2=4))
    logits = case.feed("logits", np.float32([[0.5, -1, 2, -np.inf], [0, 0, 1, 3]]), (None, 4))
    for dtype in (tf.int32, tf.int64):
        case.fetch(R.Multinomial(logits=logits, num_samples=9, seed=1, seed2=2, output_dtype=dtype))


@golden(steps=2)
def seeded_distributions(case):
    for dtype in FLOATS:
        alpha = tf.constant([0.3, 1.0, 4.5], dtype)
        case.fetch(narrow(R.RandomGamma(shape=[4], alpha=alpha, seed=11, seed2=12)))
        case.fetch(R.RandomPoissonV2(shape=[5], rate=tf.constant([0.7, 8.0, 30.0], dtype), seed=11, seed2=13, dtype=tf.int64))
    image = case.feed("image", np.int32([60, 45, 3]))
    boxes = case.feed("boxes", np.float32([[[0.1, 0.2, 0.9, 0.7]]]))
    case.fetch(*R.SampleDistortedBoundingBox(image_size=image, bounding_boxes=boxes, seed=4, seed2=8),
               *R.SampleDistortedBoundingBoxV2(image_size=image, bounding_boxes=boxes, min_object_covered=0.5, seed=4,
                                               area_range=[0.2, 0.8]))


@golden(steps=2)
def seeded_poisson(case):
    """The op that graphs had before RandomPoissonV2."""
    case.as_of(24)
    for dtype in FLOATS:
        rate = tf.constant([[0.7, 8.0], [30.0, 9000.0 if dtype != tf.float16 else 90.0]], dtype)
        case.fetch(narrow(R.RandomPoisson(shape=[5], rate=rate, seed=11, seed2=13)))


@golden(steps=2)
def truncated_normals(case):
    """Normal numbers between bounds, by each of the three ways to draw them."""
    inf = np.inf
    rows = {"means": [0.0, 5, -1, 0, 0, 0], "stdevs": [1.0, 2, 0.5, 1, 1, 3], "minvals": [-2.0, -inf, 0, 0.1, 3, -1],
            "maxvals": [2.0, 6, inf, 0.2, inf, -0.5]}
    seed = case.feed("seed", np.int64([12345678901, -7]))
    for dtype in FLOATS:
        each = {name: tf.constant(values, dtype) for name, values in rows.items()}
        for shape in ([6, 5], [6], [6, 2, 3]):
            case.fetch(narrow(R.ParameterizedTruncatedNormal(shape=shape, seed=3, seed2=4, **each)))
        for row in range(6):
            one = {name: values[row] for name, values in each.items()}
            case.fetch(narrow(R.ParameterizedTruncatedNormal(shape=[3, 7], seed=5, seed2=row, **one)))
        each = {name.replace("stdevs", "stddevs"): values for name, values in each.items()}
        case.fetch(narrow(R.StatelessParameterizedTruncatedNormal(shape=[4, 3, 6], seed=seed, **each)))
    low = case.feed("low", np.float32([[-1.0], [0.5]]))
    mean = case.feed("mean", np.float32([0.0, 0.3, -2]))
    parameters = [mean, tf.constant(1.5), low, tf.constant([[[2.0]], [[3.0]]])]
    y = tf.random.stateless_parameterized_truncated_normal([5, 2, 2, 3], seed, *parameters)
    case.fetch_with_gradients([y], parameters)


@golden(steps=2)
def seeded_candidates(case):
    truth = case.feed("truth", np.int64([[1, 5], [0, 9], [7, 5]]), (None, 2))
    for op in (R.UniformCandidateSampler, R.LogUniformCandidateSampler, R.LearnedUnigramCandidateSampler,
               R.ThreadUnsafeUnigramCandidateSampler):
        for unique in (False, True):
            case.fetch(*op(true_classes=truth, num_true=2, num_sampled=6, unique=unique, range_max=11, seed=2, seed2=7))
    for unique in (False, True):
        case.fetch(*R.FixedUnigramCandidateSampler(
            true_classes=truth, num_true=2, num_sampled=4, unique=unique, range_max=10, distortion=0.75, seed=2, seed2=7,
            unigrams=[1.0, 4, 2, 9, 3, 3, 8, 1, 5, 2]))
    case.fetch(*R.AllCandidateSampler(true_classes=truth, num_true=2, num_sampled=10, unique=True))


@golden()
def stateless(case):
    seed = case.feed("seed", np.int64([12345678901, -7]))
    small = case.feed("small", np.int32([3, 4]))
    key, counter = R.StatelessRandomGetKeyCounter(seed=seed)
    case.fetch(key, counter, *R.StatelessRandomGetKeyCounterAlg(seed=small), R.StatelessRandomGetAlg())
    later = counter + tf.constant([5, 0], tf.uint64)
    for dtype in FLOATS + (tf.bfloat16,):
        for op in ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"):
            case.fetch(narrow(getattr(R, op)(shape=[11], seed=seed, dtype=dtype)),
                       narrow(getattr(R, op + "V2")(shape=[3, 2], key=key, counter=later, alg=1, dtype=dtype)))
    for dtype in (tf.int32, tf.int64):
        ends = {"minval": tf.constant(-5, dtype), "maxval": tf.constant(60, dtype)}
        case.fetch(R.StatelessRandomUniformInt(shape=[9], seed=seed, **ends),
                   R.StatelessRandomUniformIntV2(shape=[9], key=key, counter=counter, alg=3, **ends))
    for dtype in (tf.int32, tf.int64, tf.uint32, tf.uint64):
        case.fetch(R.StatelessRandomUniformFullInt(shape=[5], seed=seed, dtype=dtype),
                   R.StatelessRandomUniformFullIntV2(shape=[5], key=key, counter=counter, alg=1, dtype=dtype))
    logits = case.feed("logits", np.float32([[0.5, -1, 2]]))
    case.fetch(R.StatelessMultinomial(logits=logits, num_samples=7, seed=seed))
    for dtype in FLOATS:
        alpha = tf.constant([0.3, 1.0, 4.5], dtype)
        case.fetch(narrow(R.StatelessRandomGammaV2(shape=[4, 3], seed=seed, alpha=alpha)))
        case.fetch(narrow(R.StatelessRandomGammaV3(shape=[4, 3], key=key, counter=counter, alg=1, alpha=alpha)))
    rate = tf.constant([0.7, 8.0, 30.0])
    case.fetch(R.StatelessRandomPoisson(shape=[5, 3], seed=seed, lam=rate, dtype=tf.int32))
    case.fetch(R.StatelessRandomBinomial(shape=[5, 4], seed=seed, counts=[20.0, 200, 3, 1000],
                                         probs=[0.1, 0.3, 0.9, 0.6], dtype=tf.int32))
    image = case.feed("image", np.int32([60, 45, 3]))
    boxes = case.feed("boxes", np.float32([[[0.1, 0.2, 0.9, 0.7]]]))
    case.fetch(*R.StatelessSampleDistortedBoundingBox(image_size=image, bounding_boxes=boxes, min_object_covered=0.3,
                                                      seed=seed))


@golden(steps=3, tolerance=1e-4)
def seeded_training(case):
    """A network whose weights, dropout and sampled classes come from the seed of the graph."""
    x = case.feed("x", case.floats(6, 8, 8, 2), (None, 8, 8, 2))
    labels = case.feed("labels", case.ints(6, high=20, dtype=np.int64), (None,))
    tf1.set_random_seed(2017)
    y = tf1.layers.conv2d(x, 4, 3, activation=tf.nn.relu, padding="same")
    y = tf1.layers.max_pooling2d(y, 2, 2)
    y = tf1.layers.dense(tf1.layers.flatten(y), 10, tf.nn.tanh, kernel_initializer=tf1.truncated_normal_initializer(stddev=0.2))
    y = tf.nn.dropout(y, rate=0.3)
    w = tf1.get_variable("w", (20, 10), initializer=tf1.variance_scaling_initializer(distribution="normal"))
    b = tf1.get_variable("b", (20,), initializer=tf1.random_uniform_initializer(-0.1, 0.1))
    loss = tf.reduce_mean(tf.nn.sampled_softmax_loss(w, b, tf.expand_dims(labels, 1), y, 5, 20))
    case.fetch(loss)
    case.fetch_after(tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss), *tf1.trainable_variables())


@golden(steps=2)
def generators(case):
    """tf.random.Generator: its state is a variable, which every draw moves on."""
    variable = tf1.get_variable("state", initializer=np.int64([-300, 7, 9]), use_resource=True)
    draws = tf.random.Generator(state=variable, alg="philox")
    results = [lambda: draws.normal([5]), lambda: draws.uniform([2, 3]), lambda: draws.truncated_normal([4], 3.0, 2.0),
               lambda: draws.uniform([5], -3, 50, tf.int64), lambda: draws.uniform_full_int([3], tf.uint32),
               lambda: draws.binomial([3, 2], [5.0, 60.0], [0.5, 0.3]), lambda: draws.make_seeds(2),
               lambda: draws.skip(4), lambda: variable.read_value()]
    before = []
    for result in results:  # one after the other
        with tf1.control_dependencies(before):
            y = result()
        before = [y] if y is not None else before
        if y is not None:
            case.fetch(tf.identity(y))


@golden(steps=2)
def generator_ops(case):
    """The ops on a generator's state that graphs had before."""
    variable = tf1.get_variable("state", initializer=np.int64([5, -1, 9]), use_resource=True)
    philox = tf.constant(1, tf.int64)
    where = {"resource": variable.handle, "algorithm": philox}
    draws = [lambda op=op, dtype=dtype: narrow(op(**where, shape=[3, 2], dtype=dtype))
             for op in (R.StatefulUniform, R.StatefulStandardNormalV2, R.StatefulTruncatedNormal)
             for dtype in FLOATS + (tf.bfloat16,)]
    draws += [lambda dtype=dtype: R.StatefulUniformInt(**where, shape=[5], minval=tf.constant(-4, dtype),
                                                       maxval=tf.constant(90, dtype)) for dtype in (tf.int32, tf.int64)]
    draws += [lambda dtype=dtype: R.StatefulUniformFullInt(**where, shape=[3], dtype=dtype)
              for dtype in (tf.int32, tf.int64, tf.uint32, tf.uint64)]
    draws += [lambda: R.StatefulRandomBinomial(**where, shape=np.int32([4, 2]), counts=[9.0, 80.0], probs=[0.4, 0.7],
                                               dtype=tf.float32),
              lambda: R.RngReadAndSkip(resource=variable.handle, alg=3, delta=tf.constant(7, tf.uint64)),
              lambda: R.RngSkip(**where, delta=tf.constant(-2, tf.int64)), lambda: variable.read_value()]
    before = []
    for draw in draws:
        with tf1.control_dependencies(before):
            y = draw()
            y = y if isinstance(y, tf1.Operation) else tf.identity(y)
        before = [y]
        if isinstance(y, tf.Tensor):
            case.fetch(y)
