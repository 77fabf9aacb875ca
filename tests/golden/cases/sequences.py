# SPDX-License-Identifier: Apache-2.0
"""Recurrent cells in loops, attention, transformers, and what they are made of."""
import numpy as np

from make import golden, initializer, tf, tf1


CELLS = {
    "lstm": lambda n: tf1.nn.rnn_cell.LSTMCell(n),
    "lstm_peephole": lambda n: tf1.nn.rnn_cell.LSTMCell(n, use_peepholes=True, num_proj=3, cell_clip=0.4),
    "gru": lambda n: tf1.nn.rnn_cell.GRUCell(n),
    "rnn": lambda n: tf1.nn.rnn_cell.BasicRNNCell(n),
    "lstm_stack": lambda n: tf1.nn.rnn_cell.MultiRNNCell([tf1.nn.rnn_cell.BasicLSTMCell(n) for _ in range(2)]),
}


def run_cell(case, name):
    x = case.feed("x", case.floats(3, 5, 4), (None, None, 4))
    lengths = case.feed("lengths", np.int32([5, 2, 0]), (None,))
    with tf1.variable_scope("net", initializer=initializer):
        outputs, state = tf1.nn.dynamic_rnn(CELLS[name](6), x, lengths, dtype=tf.float32)
    return outputs, tf.nest.flatten(state)


def forward(case, cell):
    outputs, state = run_cell(case, cell)
    case.fetch(outputs, *state)


def training(case, cell):
    outputs, state = run_cell(case, cell)
    loss = tf.reduce_mean(tf.square(outputs)) + tf.add_n([tf.reduce_sum(s * s) for s in state])
    optimizer = tf1.train.GradientDescentOptimizer(0.1)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
    case.fetch(loss, norm)
    case.target(optimizer.apply_gradients(zip(clipped, variables)))


for _cell in CELLS:
    golden(f"{_cell}_forward", tolerance=1e-4, cell=_cell)(forward)
    golden(f"{_cell}_training", steps=3, tolerance=1e-4, cell=_cell)(training)


@golden(tolerance=1e-4)
def lstm_in_one_node(case):
    x = case.feed("x", case.floats(4, 3, 5))
    state = case.feed("state", case.floats(3, 6, seed=2))
    w, b = case.variable("w", 11, 24), case.variable("b", 24, value=0.1)
    peephole = case.feed("peephole", case.floats(6, seed=3))
    for op, attrs in (("BlockLSTM", {"forget_bias": 0.5, "cell_clip": 0.3}), ("BlockLSTM", {"use_peephole": True}),
                      ("BlockLSTMV2", {"use_peephole": True}), ("BlockLSTMV2", {})):
        inputs = dict(seq_len_max=tf.constant(3, tf.int64), x=x, cs_prev=state, h_prev=state * 0.5, w=w, wci=peephole,
                      wcf=peephole * 0.5, wco=peephole * 2, b=b)
        out = getattr(tf.raw_ops, op)(**inputs, **attrs)
        # Of later steps TensorFlow sets cs and h alone, to 0.
        case.fetch(*[t[:3] for t in out], tf.identity(out.cs), tf.identity(out.h))
        # The gradient that TensorFlow registers for the second op takes the gates in the first one's order.
        gradient = tf.raw_ops.BlockLSTMGrad if op == "BlockLSTM" else tf.raw_ops.BlockLSTMGradV2
        case.fetch(*[tf.identity(t) for t in gradient(
            **inputs, **out._asdict(), cs_grad=tf.sin(out.cs), h_grad=tf.cos(out.h),
            use_peephole=attrs.get("use_peephole", False))])


@golden(tolerance=1e-4)
def recurrent_cells(case):
    # TensorFlow's gradient writes over inputs that nobody else wants, so all of them are fed.
    x, *states = case.feed("x", case.floats(3, 5)), *[case.feed(f"s{i}", case.floats(3, 6, seed=i)) for i in range(4)]
    peephole = case.feed("peephole", case.floats(6, seed=5))
    w, b = case.variable("w", 11, 24), case.variable("b", 24, value=0.1)
    for attrs in ({"forget_bias": 0.5, "cell_clip": 0.3}, {"use_peephole": True}):
        inputs = dict(x=x, cs_prev=states[0], h_prev=states[1], w=w, wci=peephole, wcf=peephole, wco=peephole, b=b)
        out = tf.raw_ops.LSTMBlockCell(**inputs, **attrs)
        kept = {name: t for name, t in out._asdict().items() if name != "h"}
        gradients = tf.raw_ops.LSTMBlockCellGrad(**inputs, **kept, cs_grad=states[2], h_grad=states[3],
                                                 use_peephole=attrs.get("use_peephole", False))
        case.fetch(*[tf.identity(t) for t in [*out, *gradients]])
    inputs = dict(x=x, h_prev=states[0], w_ru=w[:, :12], w_c=w[:, 12:18], b_ru=b[:12], b_c=b[12:18])
    out = tf.raw_ops.GRUBlockCell(**inputs)
    gradients = tf.raw_ops.GRUBlockCellGrad(**inputs, r=out.r, u=out.u, c=out.c, d_h=states[3])
    case.fetch(*[tf.identity(t) for t in [*out, *gradients]])


@golden(steps=2, tolerance=1e-4)
def rnn_unrolled(case):
    """A loop written out, as static_rnn does."""
    x = case.feed("x", case.floats(3, 4, 5), (None, 4, 5))
    with tf1.variable_scope("net", initializer=initializer):
        outputs, state = tf1.nn.static_rnn(tf1.nn.rnn_cell.GRUCell(4), tf.unstack(x, axis=1), dtype=tf.float32)
    loss = tf.reduce_sum(tf.stack(outputs) ** 2)
    case.fetch(loss, state)
    case.target(tf1.train.AdamOptimizer(0.02).minimize(loss))


def layer_norm(case, name, x):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    n = x.shape[-1]
    return tf.nn.batch_normalization(x, mean, variance, case.variable(f"{name}/beta", n, value=0),
                                     case.variable(f"{name}/gamma", n, value=1), 1e-5)


@golden(steps=3, tolerance=1e-4)
def transformer(case):
    """A block: attention with a mask by einsum, layer norm, gelu; tokens and places embedded."""
    tokens = case.feed("tokens", case.ints(2, 5, high=11), (None, 5))
    lengths = case.feed("lengths", np.int32([5, 3]), (None,))
    width, heads = 8, 2
    x = tf.nn.embedding_lookup(case.variable("words", 11, width, scale=1), tokens)
    x += case.variable("places", 5, width, scale=0.3)
    parts = [tf.einsum("btd,dhk->bthk", x, case.variable(name, width, heads, width // heads, scale=0.6))
             for name in ("q", "k", "v")]
    scores = tf.einsum("bqhk,bthk->bhqt", parts[0], parts[1]) / np.float32(np.sqrt(width // heads))
    mask = tf.sequence_mask(lengths, 5, dtype=tf.float32)[:, None, None, :]
    causal = tf.linalg.band_part(tf.ones((5, 5)), -1, 0)
    weights = tf.nn.softmax(scores + (1 - mask * causal) * -1e9)
    y = tf.einsum("bhqt,bthk,hkd->bqd", weights, parts[2], case.variable("o", heads, width // heads, width, scale=0.6))
    x = layer_norm(case, "ln1", x + y)
    h = tf.tensordot(x, case.variable("w1", width, 12), 1) + case.variable("b1", 12, value=0)
    h = tf.nn.gelu(h) + tf.nn.gelu(h, approximate=True)
    x = layer_norm(case, "ln2", x + tf.tensordot(h, case.variable("w2", 12, width), 1))
    logits = tf.matmul(x, tf.tile(case.variable("logits", 1, width, 11), (tf.shape(x)[0], 1, 1)))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tokens, logits=logits)
    kept = tf.boolean_mask(losses, tf.sequence_mask(lengths, 5))
    loss = tf.reduce_mean(kept)
    case.fetch(loss, weights, tf.argmax(logits, -1))
    step = tf1.train.create_global_step()
    rate = 0.1 * tf.minimum(tf.math.rsqrt(tf.cast(step, tf.float32) + 1), 0.5)
    case.target(tf1.train.AdamOptimizer(rate, 0.9, 0.98).minimize(loss, global_step=step))


@golden(steps=2, tolerance=1e-4)
def attention(case):
    """A decoder step looking back at the states of an encoder (Bahdanau)."""
    states = case.feed("states", case.floats(3, 6, 5), (None, None, 5))
    query = case.feed("query", case.floats(3, 4, seed=2), (None, 4))
    keys = tf.tensordot(states, case.variable("keys", 5, 7), 1)
    mixed = tf.tanh(keys + tf.expand_dims(tf.matmul(query, case.variable("query_w", 4, 7)), 1))
    weights = tf.nn.softmax(tf.reduce_sum(mixed * case.variable("v", 7, scale=1), -1))
    context = tf.squeeze(tf.matmul(tf.expand_dims(weights, 1), states), 1)
    y = tf.concat([context, query], -1)
    loss = tf.reduce_mean(tf1.losses.huber_loss(tf.zeros_like(y), y, delta=0.5))
    case.fetch(loss, weights, context)
    case.target(tf1.train.AdagradOptimizer(0.1).minimize(loss))


@golden(steps=3, tolerance=1e-4)
def seq2seq(case):
    """An encoder, and a decoder that looks back at its states in a loop: trained on given words, read out by its own."""
    source = case.feed("source", case.ints(3, 5, high=9), (None, None))
    lengths = case.feed("lengths", np.int32([5, 2, 4]), (None,))
    target = case.feed("target", case.ints(3, 4, high=9, seed=2), (None, None))
    words = case.variable("words", 9, 4, scale=1)
    with tf1.variable_scope("encoder", initializer=initializer):
        states, last = tf1.nn.dynamic_rnn(tf1.nn.rnn_cell.GRUCell(6), tf.nn.embedding_lookup(words, source), lengths,
                                          dtype=tf.float32)
    with tf1.variable_scope("decoder", initializer=initializer):
        cell = tf1.nn.rnn_cell.GRUCell(6)
        cell.build((None, 4 + 6))
    query, v = case.variable("query", 6, 5), case.variable("v", 5, scale=1)
    out = case.variable("out", 12, 9)
    keys = tf.tensordot(states, case.variable("keys", 6, 5), 1)
    hidden = (tf.sequence_mask(lengths, tf.shape(source)[1], tf.float32) - 1) * 1e9

    def decode(word_at, steps):
        def step(t, word, state, logits):
            scores = tf.reduce_sum(tf.tanh(keys + tf.matmul(state, query)[:, None]) * v, -1) + hidden
            context = tf.reduce_sum(tf.nn.softmax(scores)[..., None] * states, 1)
            _, state = cell(tf.concat([tf.nn.embedding_lookup(words, word), context], 1), state)
            now = tf.matmul(tf.concat([state, context], 1), out)
            return t + 1, word_at(t, now), state, logits.write(t, now)

        first = tf.zeros_like(target[:, 0])
        logits = tf1.TensorArray(tf.float32, steps)
        return tf.transpose(tf.while_loop(lambda t, *_: t < steps, step, [0, first, last, logits])[3].stack(), (1, 0, 2))

    given = tf.transpose(target)
    logits = decode(lambda t, now: given[t], tf.shape(target)[1])
    greedy = decode(lambda t, now: tf.argmax(now, 1, output_type=tf.int32), 6)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logits))
    case.fetch(loss, tf.argmax(greedy, -1), greedy)
    optimizer = tf1.train.AdamOptimizer(0.05)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    with tf1.control_dependencies([greedy]):  # which reads what the training changes
        case.target(optimizer.apply_gradients(zip(clipped, variables)))


@golden(tolerance=1e-4)
def ctc(case):
    """The loss over all alignments with its gradient, and both decoders."""
    logits = case.feed("logits", case.floats(6, 2, 4, low=-2, high=2), (None, 2, 4))
    lengths = case.feed("lengths", np.int32([6, 4]), (None,))
    labels = tf.SparseTensor(np.int64([[0, 0], [0, 1], [0, 2], [1, 0]]), case.feed("labels", np.int32([1, 1, 0, 2]), (4,)),
                             np.int64([2, 3]))
    losses = [tf1.nn.ctc_loss(labels, logits, lengths), tf1.nn.ctc_loss(labels, logits, lengths, True),
              tf1.nn.ctc_loss(labels, logits, lengths, ctc_merge_repeated=False)]
    case.fetch_with_gradients(losses, [logits])
    for merge in (True, False):
        (greedy,), score = tf1.nn.ctc_greedy_decoder(logits, lengths, merge_repeated=merge)
        case.fetch(greedy.indices, greedy.values, greedy.dense_shape, score)
        paths, scores = tf1.nn.ctc_beam_search_decoder(logits, lengths, beam_width=5, top_paths=3, merge_repeated=merge)
        case.fetch(scores, *[t for p in paths for t in (p.indices, p.values, p.dense_shape)])


@golden()
def distances(case):
    """How far sequences are from others; rows stacked in parallel, and a product of matrices said to be sparse."""
    symbols = case.feed("symbols", np.int32([5, 6, 7, 1]), (None,))
    guess = tf.SparseTensor(np.int64([[0, 0], [0, 1], [1, 0], [3, 2]]), symbols, np.int64([4, 3]))
    truth = tf.SparseTensor(np.int64([[0, 0], [0, 2], [0, 3], [1, 1], [2, 0]]), tf.constant([5, 7, 6, 7, 1]),
                            np.int64([4, 4]))
    case.fetch(tf.edit_distance(guess, truth, normalize=False))
    case.fetch(tf.edit_distance(guess, tf.SparseTensor(guess.indices, symbols[::-1], guess.dense_shape)))
    x = case.feed("x", case.floats(3, 4), (None, 4))
    rows = tf.parallel_stack([x[0], x[2], x[1]])
    y = tf.matmul(x, tf.stop_gradient(rows), transpose_a=True, a_is_sparse=True)
    case.fetch(rows)
    case.fetch_with_gradients([y], [x])


@golden()
def sparse_arithmetic(case):
    """Sparse tensors joined, parted, added, multiplied and reduced, with gradients where there are any."""
    values = case.feed("values", case.floats(5, low=-2, high=2), (None,))
    others = case.feed("others", case.floats(4, low=-2, high=2, seed=2), (None,))
    dense = case.feed("dense", case.floats(3, 4, low=0.5, high=2, seed=3), (None, 4))
    a = tf.SparseTensor(np.int64([[0, 1], [0, 3], [1, 0], [2, 1], [2, 2]]), values, np.int64([3, 4]))
    b = tf.SparseTensor(np.int64([[0, 0], [0, 1], [2, 1], [2, 3]]), others, np.int64([3, 4]))
    s = tf.sparse
    results = [s.add(a, b), s.add(a, b, 0.5), a * dense, a / dense, a * dense[:1], s.softmax(a),
               s.slice(a, [0, 1], [2, 9])]
    sums = [s.reduce_sum(a, 1), s.reduce_sum(a, 0, keepdims=True), s.reduce_sum(a), s.add(a, dense)]
    case.fetch_with_gradients([r.values for r in results] + sums, [values, others, dense])
    plain = [s.maximum(a, b), s.minimum(a, b), s.concat(1, [a, b]), s.concat(0, [b, a]), *s.split(a, 3, 1),
             s.reduce_sum(a, 1, output_is_sparse=True), s.reduce_max(a, 0, output_is_sparse=True)]
    for t in results + plain:
        case.fetch(t.indices, t.dense_shape)
    case.fetch(*[t.values for t in plain], s.reduce_max(a, 1))
