# SPDX-License-Identifier: Apache-2.0
"""Strings, and what is parsed from and printed to them."""
import base64
import gzip
import unicodedata
import zlib

import numpy as np
from google.protobuf import descriptor_pb2, text_format

from make import golden, tf, tf1

R = tf.raw_ops

TEXTS = [b"", b"a", b"abc", b"Hello, World!", b"  two words\t", "Grüße, ÄÖÜ".encode(), b"0123456789abcdef",
         b"0123456789abcdef0", b"x" * 33, b"the quick brown fox jumps over the lazy dog, twice" * 2, b"y" * 64, b"z" * 65,
         b"q" * 129, b"1,2;3", b"aXbXXc"]


def feed_texts(case, texts=TEXTS):
    return case.feed("texts", np.array(texts, dtype=object), (None,))


def fetch_text(case, *tensors):
    """NumPy's byte strings drop zeros at their ends and have one width; marks keep both."""
    case.fetch(*[tf.strings.join(["<", t, ">"]) for t in tensors])


@golden()
def strings(case):
    x = feed_texts(case)
    s = tf.strings
    case.fetch(s.length(x), s.length(x, unit="UTF8_CHAR"), s.to_hash_bucket_fast(x, 1 << 40),
               s.to_hash_bucket_strong(x, 1 << 40, [12, 345678901234]), tf1.string_to_hash_bucket(x, 1 << 40))
    encoded = tf.io.encode_base64(x, pad=True)
    fetch_text(case, s.lower(x), s.upper(x), s.lower(x, "utf-8"), s.upper(x, "utf-8"), s.strip(x), encoded,
               tf.io.encode_base64(x), tf.io.decode_base64(encoded), s.substr(x[2:6], 1, 2), s.substr(x[2:6], -2, 5),
               s.substr(x[5:6], [2, 8], [3, 1], "UTF8_CHAR"), s.join([x, "-", x[::-1]], "/"),
               tf1.reduce_join(s.substr(x[2:6], [[0], [1], [2]], [[1], [2], [1]]), [1, 0], separator="."),
               tf1.reduce_join([["a", "b"], ["c", "d"]], 0, keep_dims=True),
               s.unsorted_segment_join(x[:4], [1, 0, 1, 1], 3, ":"))
    for pieces in (tf1.string_split(x, " ,"), tf1.string_split(x, "X", skip_empty=False), tf1.string_split(x[:3], ""),
                   tf1.strings.split(x, result_type="SparseTensor"),
                   tf1.strings.split(x, "X", maxsplit=1, result_type="SparseTensor")):
        case.fetch(pieces.indices, pieces.dense_shape)
        fetch_text(case, pieces.values)


@golden()
def numbers_and_strings(case):
    x = case.feed("x", np.float32([0, 1, -1.5, 0.1, 1e10, 1e-7, np.inf, np.nan, 123456.789]))
    i = case.feed("i", np.int32([0, 7, -12, 2147483647]))
    fetch_text(case, tf.as_string(x), tf.as_string(x, precision=2), tf.as_string(x, scientific=True),
               tf.as_string(x, shortest=True), tf.as_string(x, width=12, precision=3, fill="0"), tf.as_string(i),
               tf.as_string(i, width=6), tf.as_string(i, width=6, fill="-"), tf.as_string(tf.cast(x, tf.float64)),
               tf.as_string(i > 0), tf.as_string(tf.complex(x, -x)), tf.as_string(tf.cast(i, tf.int64) * 4))
    text = case.feed("text", np.array([b"0", b" 1.5", b"-2e3 ", b"inf", b"NaN", b"1e-60"], dtype=object))
    case.fetch(tf.strings.to_number(text), tf.strings.to_number(text, tf.float64))
    whole = case.feed("whole", np.array([b"12", b" -7 ", b"0"], dtype=object))
    case.fetch(tf.strings.to_number(whole, tf.int32), tf.strings.to_number(whole, tf.int64))


@golden()
def formats(case):
    """tf.strings.format, and asserts and prints that pass."""
    x = case.feed("x", case.floats(2, 9, 3), (None, 9, 3))
    i = case.feed("i", case.ints(12, high=100))
    texts = feed_texts(case, [b"a", b"b c"])
    fetch_text(case, *[tf.strings.format("{} and {}!", (x, i), summarize=n) for n in (-1, 1, 3)],
               tf.strings.format("{}", texts), tf.strings.format("{}", x[0, 0, 0] > 0), tf.strings.format("none", ()),
               tf.strings.format("{}", tf.cast(x[0, 0], tf.float64)))
    with tf1.control_dependencies([tf1.assert_positive(i + 1, data=[i]), tf1.assert_equal(tf.shape(x)[1], 9),
                                   tf1.assert_rank(x, 3), tf1.Assert(tf.reduce_all(i >= 0), [i, x])]):
        case.fetch(tf1.Print(x, [i, texts], "seen: ", first_n=0))


@golden(steps=2)
def tables(case):
    """Constant and mutable tables, and buckets for what is not in them."""
    words = feed_texts(case, [b"red", b"pink", b"blue", b""])
    ids = case.feed("ids", np.int64([2, 0, 9]), (None,))
    lookup = tf1.lookup
    keys, values = tf.constant(["red", "green", "blue"]), tf.constant([4, 5, 6], tf.int64)
    constant = lookup.StaticHashTable(lookup.KeyValueTensorInitializer(keys, values), -1)
    buckets = lookup.StaticVocabularyTable(lookup.KeyValueTensorInitializer(keys, tf.range(3, dtype=tf.int64)), 5)
    names = lookup.StaticHashTable(lookup.KeyValueTensorInitializer(tf.range(3, dtype=tf.int64), keys), "none")
    changing = lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0, 0.0], name="changing")
    dense = lookup.experimental.DenseHashTable(tf.int64, tf.int64, -1, empty_key=-7, deleted_key=-8)
    case.fetch(constant.lookup(words), constant.size(), buckets.lookup(words))
    fetch_text(case, names.lookup(ids))
    with tf1.control_dependencies([changing.insert(words[:2], [[1.0, 2], [3, 4]]), dense.insert(ids, ids * 10)]):
        found = [changing.lookup(words), dense.lookup(ids + 2)]
    with tf1.control_dependencies(found):
        gone = [changing.remove(words[:1]), dense.erase(ids[:1])]
    with tf1.control_dependencies(gone):
        case.fetch(*found, changing.lookup(words[::-1]), changing.size(), dense.size(), dense.lookup(ids))


@golden()
def dense_tables(case):
    """The buckets of dense tables, as they grow, lose entries and come back from an import."""
    numbers = case.feed("numbers", np.int64([3, 11, -6, 19, 35]), (None,))
    words = feed_texts(case, [b"red", b"", b"a word of more than eight", b"green"])

    def table(empty, deleted, values, buckets=8, shape=()):
        return R.MutableDenseHashTableV2(empty_key=empty, deleted_key=deleted, value_dtype=values, value_shape=shape,
                                         initial_num_buckets=buckets, max_load_factor=0.7)

    def show(handle, keys, values, default):
        shown = R.LookupTableExportV2(table_handle=handle, Tkeys=keys.dtype, Tvalues=values.dtype)
        copies = [tf.reverse(x, [0]) for x in shown]  # what TensorFlow shows are the buckets themselves
        case.fetch(tf.strings.join(["<", copies[0], ">"]) if keys.dtype == tf.string else copies[0], copies[1],
                   R.LookupTableSizeV2(table_handle=handle),
                   R.LookupTableFindV2(table_handle=handle, keys=keys, default_value=default))
        return shown

    pairs = tf.stack([numbers, numbers // 2], 1)
    small = tf.cast(numbers, tf.int32)
    for handle, keys, values, default in (
            (table(tf.constant(-1), tf.constant(-2), tf.int32, buckets=4), small, small * 2, -7),
            (table(tf.constant([-1, 0], tf.int64), tf.constant([-2, 0], tf.int64), tf.int64, shape=(2,)), pairs, -pairs,
             tf.constant([4, 5], tf.int64)),
            (table("-", "--", tf.bool, buckets=16), words, tf.strings.length(words) > 3, True),
            (table(tf.constant(-1, tf.int64), tf.constant(-2, tf.int64), tf.float32), numbers,
             tf.cast(numbers, tf.float32), 0.5)):
        with tf1.control_dependencies([R.LookupTableInsertV2(table_handle=handle, keys=keys, values=values)]):
            removed = R.LookupTableRemoveV2(table_handle=handle, keys=keys[1:3])
        with tf1.control_dependencies([removed]):
            again = R.LookupTableInsertV2(table_handle=handle, keys=keys[2:3], values=values[:1])
        with tf1.control_dependencies([again]):
            shown = show(handle, keys, values, default)
    other = table(tf.constant(-1, tf.int64), tf.constant(-2, tf.int64), tf.float32, buckets=32)
    with tf1.control_dependencies([R.LookupTableImportV2(table_handle=other, keys=shown.keys, values=shown.values)]):
        show(other, keys, values, default)


def records():
    train = tf1.train
    feature = lambda **kind: train.Feature(**kind)  # noqa: E731
    out = []
    for i in range(3):
        features = {
            "numbers": feature(int64_list=train.Int64List(value=range(i))),
            "reals": feature(float_list=train.FloatList(value=[i + 0.5, -i, 2, 3][:2 * (i % 2) + 2])),
            "pair": feature(float_list=train.FloatList(value=[i, i + 1])),
        }
        if i != 1:
            features["name"] = feature(bytes_list=train.BytesList(value=[b"record %d" % i]))
        record = train.Example(features=train.Features(feature=features)).SerializeToString(deterministic=True)
        out.append(base64.urlsafe_b64encode(record))  # NumPy's strings lose zeros at their ends
    return np.array(out, dtype=object)


@golden()
def examples(case):
    """tf.Example records, one by one and in a batch, lines of CSV, raw bytes."""
    serialized = tf.io.decode_base64(case.feed("serialized", records(), (None,)))
    io = tf1.io
    features = {
        "numbers": io.VarLenFeature(tf.int64), "pair": io.FixedLenFeature([2], tf.float32),
        "name": io.FixedLenFeature([], tf.string, default_value="nobody"),
        "reals": io.FixedLenSequenceFeature([2], tf.float32, allow_missing=True, default_value=-1.0),
    }
    batch = io.parse_example(serialized, features)
    features["reals"] = io.VarLenFeature(tf.float32)
    one = io.parse_single_example(serialized[2], features)
    for parsed in (batch, one):
        fetch_text(case, parsed["name"])
        case.fetch(parsed["pair"], parsed["numbers"].indices, parsed["numbers"].values, parsed["numbers"].dense_shape)
    case.fetch(batch["reals"], one["reals"].values)
    lines = case.feed("lines", np.array([b'1,2.5,"a ""quoted"", text"', b"7,,b"], dtype=object), (None,))
    number, real, text = tf1.decode_csv(lines, [[0], [9.5], [""]])
    fetch_text(case, text)
    for tensor, dtype in ((number, tf.int32), (real, tf.float32), (text, tf.string), (tf.range(0), tf.int32)):
        serialized = tf.io.serialize_tensor(tensor)
        fetch_text(case, tf.io.encode_base64(serialized))
        if dtype != tf.string:
            case.fetch(tf.io.parse_tensor(serialized, dtype))
    case.fetch(number, real, tf1.decode_raw(lines[:1], tf.uint8),
               tf1.decode_raw(tf.strings.substr(lines, 0, 4), tf.int16, little_endian=False),
               tf.io.decode_raw(lines, tf.int32, little_endian=False, fixed_length=12))


@golden()
def sequence_example(case):
    """A record of a sequence: features of the whole and of its steps, some not there."""
    train, io = tf1.train, tf1.io
    ints = lambda *v: train.Feature(int64_list=train.Int64List(value=v))  # noqa: E731
    reals = lambda *v: train.Feature(float_list=train.FloatList(value=v))  # noqa: E731
    texts = lambda *v: train.Feature(bytes_list=train.BytesList(value=v))  # noqa: E731
    lists = {"words": [texts(b"a", b"bc"), texts(), texts(b"d")], "pairs": [reals(1, 2), reals(3, -4.5), reals(5, 6)],
             "labels": [ints(7), ints(8), ints(9)]}
    record = train.SequenceExample(
        context=train.Features(feature={"length": ints(3), "name": texts(b"x"), "extra": reals(1, 2, 3)}),
        feature_lists=train.FeatureLists(feature_list={k: train.FeatureList(feature=v) for k, v in lists.items()}))
    encoded = base64.urlsafe_b64encode(record.SerializeToString(deterministic=True))
    serialized = tf.io.decode_base64(case.feed("serialized", np.array(encoded, dtype=object), ()))
    context, steps = io.parse_single_sequence_example(
        serialized,
        {"length": io.FixedLenFeature([], tf.int64), "name": io.VarLenFeature(tf.string),
         "extra": io.FixedLenFeature([3], tf.float32), "none": io.VarLenFeature(tf.int64),
         "other": io.FixedLenFeature([2], tf.float32, default_value=[0.5, 1.5])},
        {"words": io.VarLenFeature(tf.string), "pairs": io.FixedLenSequenceFeature([2], tf.float32),
         "labels": io.FixedLenSequenceFeature([], tf.int64), "missing": io.VarLenFeature(tf.float32),
         "allowed": io.FixedLenSequenceFeature([3], tf.int64, allow_missing=True)})
    fetch_text(case, context["name"].values, steps["words"].values)
    case.fetch(context["length"], context["extra"], context["other"], steps["pairs"], steps["labels"],
               steps["allowed"])
    for sparse in (context["name"], context["none"], steps["words"], steps["missing"]):
        case.fetch(sparse.indices, sparse.dense_shape)
    case.fetch(context["none"].values, steps["missing"].values)
    # A batch, with ragged features too.
    shorter = train.SequenceExample(
        context=train.Features(feature={"length": ints(1)}),
        feature_lists=train.FeatureLists(feature_list={"labels": train.FeatureList(feature=[ints(4)])}))
    encoded = [base64.urlsafe_b64encode(r.SerializeToString(deterministic=True)) for r in (record, shorter)]
    batch = tf.io.decode_base64(case.feed("batch", np.array(encoded, dtype=object), (None,)))
    context, steps, lengths = io.parse_sequence_example(
        batch, {"length": io.FixedLenFeature([], tf.int64), "name": io.VarLenFeature(tf.string),
                "extra": io.RaggedFeature(tf.float32)},
        {"labels": io.FixedLenSequenceFeature([], tf.int64), "words": io.VarLenFeature(tf.string),
         "pairs": io.RaggedFeature(tf.float32)})
    fetch_text(case, context["name"].values, steps["words"].values)
    case.fetch(context["length"], context["extra"].values, context["extra"].row_splits, steps["labels"],
               lengths["labels"], *steps["pairs"].nested_row_splits, steps["pairs"].flat_values,
               context["name"].indices, context["name"].dense_shape, steps["words"].indices,
               steps["words"].dense_shape)


@golden(steps=2)
def summaries(case):
    x = case.feed("x", case.floats(7, 5, low=-3, high=40))
    scalar = tf1.summary.scalar("loss", tf.reduce_sum(tf.cast(x, tf.int32)))
    fetch_text(case, scalar, tf1.summary.merge([scalar, tf1.summary.histogram("weights", tf.round(x))]))
    sound = tf.reshape(x[:6], (2, 5, 3)) / 30
    for rate in (44100.0, 8000.4):
        fetch_text(case, tf1.summary.audio("sound", sound, rate), tf1.summary.audio("first", sound[:, :, 0], rate, 1))
    fetch_text(case, tf1.summary.tensor_summary("whole", tf.cast(x[:2], tf.int32), summary_description="a table"),
               tf.raw_ops.TensorSummary(tensor=["text", ""], name="words"))


@golden()
def older_examples(case):
    """The ops of earlier versions that parse records."""
    R = tf.raw_ops
    serialized = tf.io.decode_base64(case.feed("serialized", records(), (None,)))
    parsed = R.ParseExample(serialized=serialized, names=[], sparse_keys=["numbers"], dense_keys=["name"], dense_defaults=["none"],
                            sparse_types=[tf.int64], dense_shapes=[()])
    one = R.ParseSingleExample(serialized=serialized[2], dense_defaults=["none"], num_sparse=1, sparse_keys=["numbers"],
                               dense_keys=["name"], sparse_types=[tf.int64], dense_shapes=[()])
    for p in (parsed, one):
        case.fetch(p.sparse_indices[0], p.sparse_values[0], p.sparse_shapes[0])
        fetch_text(case, p.dense_values[0])


@golden()
def fingerprints(case):
    x = feed_texts(case)
    case.fetch(tf.fingerprint(x), tf.fingerprint(tf.reshape(x[:12], [3, 2, 2])), tf.fingerprint(case.floats(3, 4)),
               tf.fingerprint(tf.zeros([2, 0])))


@golden()
def sounds(case):
    x = case.feed("x", case.floats(40, 2), (None, 2))
    contents = tf.audio.encode_wav(x, 8000)
    fetch_text(case, tf.io.encode_base64(contents))
    for options in ({}, {"desired_channels": 3, "desired_samples": 50}, {"desired_channels": 1, "desired_samples": 7}):
        case.fetch(*tf.audio.decode_wav(contents, **options))
    for size, stride, squared in ((12, 7, True), (16, 16, False)):
        spectrum = tf.raw_ops.AudioSpectrogram(input=x, window_size=size, stride=stride, magnitude_squared=squared)
        case.fetch(spectrum, tf.raw_ops.Mfcc(spectrogram=spectrum, sample_rate=8000, filterbank_channel_count=5,
                                             dct_coefficient_count=4, upper_frequency_limit=3500.0,
                                             lower_frequency_limit=300.0))


@golden()
def packed(case):
    """Compressed strings, and sparse tensors as strings and as variants."""
    R = tf.raw_ops
    texts = {"": b"abc", "ZLIB": zlib.compress(b"hello " * 5), "GZIP": gzip.compress(b"hello " * 5, mtime=0)}
    for kind, text in texts.items():
        fetch_text(case, tf.io.decode_compressed(tf.constant([text, text]), kind))
    x = tf.sparse.from_dense(case.feed("x", case.ints(3, 4, high=3)))
    one, many = tf1.serialize_sparse(x), tf1.serialize_many_sparse(x)
    fetch_text(case, tf.io.encode_base64(one), tf.io.encode_base64(many))
    variant = tf1.serialize_many_sparse(x, out_type=tf.variant)
    for back in (tf1.deserialize_many_sparse(many, x.dtype), R.DeserializeSparse(serialized_sparse=one, dtype=x.dtype),
                 R.DeserializeSparse(serialized_sparse=many[1], dtype=x.dtype),
                 R.DeserializeSparse(serialized_sparse=tf.reshape(variant, [3, 1, 3]), dtype=x.dtype)):
        case.fetch(*(back if isinstance(back, tuple) else (back.indices, back.values, back.dense_shape)))


@golden()
def crosses(case):
    """Crossed features, as of tf.feature_column.crossed_column."""
    R = tf.raw_ops
    words = tf.sparse.from_dense(case.feed("words", np.array([[b"a", b"b", b""], [b"", b"", b""], [b"c", b"", b"dd"]],
                                                              dtype=object)))
    numbers = tf.sparse.from_dense(case.feed("numbers", np.int64([[4, 0, -5], [1, 2, 3], [0, 9, 0]])))
    texts = case.feed("texts", np.array([[b"x", b"y"], [b"z", b"w"], [b"", b"v"]], dtype=object))
    places = tf.constant([[7], [8], [-9]], tf.int64)

    def fetch(crossed):
        indices, values, shape = crossed.indices, crossed.values, crossed.dense_shape
        case.fetch(indices, shape)
        if values.dtype == tf.string:
            fetch_text(case, values)
        else:
            case.fetch(values)

    fetch(tf.sparse.cross([words, texts]))
    fetch(tf.sparse.cross([words, numbers, texts, places], separator="-"))
    fetch(tf.sparse.cross_hashed([words, texts]))
    fetch(tf.sparse.cross_hashed([numbers, places, words, texts], num_buckets=1000, hash_key=2 ** 62 + 5))
    fetch(tf.sparse.cross_hashed([numbers], num_buckets=3))
    for hashed in (False, True):
        fetch(tf.SparseTensor(*R.SparseCross(
            indices=[numbers.indices, words.indices], values=[numbers.values, words.values],
            shapes=[numbers.dense_shape, words.dense_shape], dense_inputs=[places, texts], hashed_output=hashed,
            num_buckets=50, hash_key=3, out_type=tf.int64 if hashed else tf.string, internal_type=tf.int64)))
    fetch(tf.SparseTensor(*R.SparseCross(
        indices=[words.indices], values=[words.values], shapes=[words.dense_shape], dense_inputs=[texts], hashed_output=False,
        num_buckets=0, hash_key=0, out_type=tf.string, internal_type=tf.string)))


@golden()
def crosses_by_salt(case):
    """Crosses as numbers, of hashes that a key makes or none."""
    words = tf.sparse.from_dense(case.feed("words", np.array([[b"a", b""], [b"", b"bc"], [b"d", b"efg"]], dtype=object)))
    numbers = tf.sparse.from_dense(case.feed("numbers", np.int64([[4, 0, -5], [1, 2, 3], [0, 9, 0]])))
    texts, places = tf.constant([["x", "yz"], ["", "w"], ["v", "u"]]), tf.constant([[7], [8], [-9]], tf.int64)
    for strong in (False, True):
        sparse, dense = ([words], [texts]) if strong else ([numbers, words], [texts, places])  # it crashes for numbers
        for buckets, salt in ((0, [1, 2]), (97, [-3, 2 ** 62])):
            case.fetch(*R.SparseCrossHashed(
                indices=[x.indices for x in sparse], values=[x.values for x in sparse], dense_inputs=dense,
                shapes=[x.dense_shape for x in sparse], num_buckets=tf.constant(buckets, tf.int64), strong_hash=strong,
                salt=tf.constant(salt, tf.int64)))
        case.fetch(R.SparseCrossHashed(indices=[], values=[], shapes=[], dense_inputs=[texts], strong_hash=strong,
                                       num_buckets=tf.constant(10, tf.int64), salt=tf.constant([5, 6], tf.int64))[1])


@golden()
def grams_and_characters(case):
    """N-grams of the rows of ragged tensors, and texts as code points."""
    words = case.feed("words", np.array([b"a", b"bc", b"", b"d", b"e"], dtype=object))
    for splits, widths, pads, preserve in (([0, 3, 3, 5], [2], 0, False), ([0, 3, 3, 5], [1, 3], -1, False),
                                           ([0, 1, 5], [4], 1, True), ([0, 5], [9], 0, True)):
        grams = R.StringNGrams(data=words, data_splits=tf.constant(splits, tf.int64), separator="-", ngram_widths=widths,
                               left_pad="<", right_pad=">", pad_width=pads, preserve_short_sequences=preserve)
        fetch_text(case, grams.ngrams)
        case.fetch(grams.ngrams_splits)
    x = case.feed("texts", np.array([b"", "aä€😀".encode(), b"\xe2\x82a\xff\x80", b"\xed\xa0\x80\xf4\x90\x80\x80", b"\x01\x1f b"],
                                    dtype=object))
    for errors in ("replace", "ignore"):
        for controls in (False, True):
            options = {"errors": errors, "replacement_char": 63, "replace_control_characters": controls}
            case.fetch(*R.UnicodeDecodeWithOffsets(input=x, input_encoding="UTF-8", **options))
            case.fetch(*R.UnicodeDecode(input=x, input_encoding="latin1", Tsplits=tf.int32, **options))
            for encoding in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
                coded = R.UnicodeTranscode(input=x, input_encoding="UTF-8", output_encoding=encoding, **options)
                case.fetch(*R.UnicodeDecodeWithOffsets(input=coded, input_encoding=encoding, **options))
                cut = tf.strings.substr(coded, tf.zeros_like(tf.strings.length(coded)), tf.maximum(tf.strings.length(coded) - 1, 0))
                case.fetch(*R.UnicodeDecodeWithOffsets(input=cut, input_encoding=encoding, **options))
    codes = case.feed("codes", np.int32([97, 0x1F600, -1, 0x110000, 0xD83D, 0x20AC]))
    for encoding in ("UTF-8", "UTF-16-BE", "UTF-32-BE"):
        fetch_text(case, tf.io.encode_base64(R.UnicodeEncode(input_values=codes, input_splits=tf.constant([0, 2, 2, 6], tf.int64),
                                                             output_encoding=encoding)))


@golden()
def scripts_of_characters(case):
    """The scripts of characters that Unicode had early, which later versions leave alone, and of numbers beyond."""
    known = [c for c in range(0, 0x30000, 37) if unicodedata.ucd_3_2_0.category(chr(c)) != "Cn"]
    case.fetch(tf.strings.unicode_script(case.feed("codes", np.int32([*known, 0xD800, 0x10FFFF, 0x110000, -1]))))


@golden()
def messages(case):
    """Protocol buffers taken apart and put together by types that come with the op, and examples from JSON."""
    text = """file { name: 'a.proto' package: 't'
      enum_type { name: 'E' value { name: 'A' number: 3 } value { name: 'B' number: 5 } }
      message_type { name: 'Part' field { name: 'x' number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 } }
      message_type { name: 'Whole' """
    names, types = [], []
    kinds = [("int32", tf.int32, "default_value: '7'"), ("int64", tf.int64, ""), ("string", tf.string, "default_value: 'dd'"),
             ("float", tf.float32, ""), ("bool", tf.bool, ""), ("uint64", tf.uint64, ""), ("double", tf.float64, ""),
             ("bytes", tf.string, ""), ("sint64", tf.int64, ""), ("message", tf.string, "type_name: '.t.Part'"),
             ("enum", tf.int32, "type_name: '.t.E'"), ("fixed32", tf.uint32, "")]
    for name, dtype, more in kinds:
        for label in ("optional", "repeated"):
            if label == "repeated" and more.startswith("default"):
                more = ""
            names.append(f"{label}_{name}")
            types.append(dtype)
            text += (f"field {{ name: '{names[-1]}' number: {len(names)} label: LABEL_{label.upper()} "
                     f"type: TYPE_{name.upper()} {more} }} ")
    files = text_format.Parse(text + "} }", descriptor_pb2.FileDescriptorSet())
    source = b"bytes://" + files.SerializeToString()
    written = case.feed("written", np.array([
        b"optional_int32: 3 repeated_int64: 4 repeated_int64: -5 optional_string: 'q' repeated_float: 1.5 optional_bool: true "
        b"repeated_message { x: 4 } repeated_message { } optional_enum: B optional_uint64: 9 repeated_double: 2.5 "
        b"repeated_bytes: 'a' repeated_bytes: 'bc' optional_sint64: -8 repeated_fixed32: 11 repeated_enum: A",
        b"repeated_int64: 1 optional_message { x: 1 } repeated_bool: false", b""]), (None,))
    arguments = {"message_type": "t.Whole", "field_names": names, "descriptor_source": source}
    sizes, values = tf.io.decode_proto(written, output_types=types, message_format="text", **arguments)
    case.fetch(sizes, *[v for v in values if v.dtype != tf.string])
    encoded = tf.reshape(tf.io.encode_proto(sizes, values, **arguments), (1, 3))
    fetch_text(case, tf.io.encode_base64(encoded))
    sizes, values = tf.io.decode_proto(encoded, output_types=types, **arguments)
    case.fetch(sizes, *[v for v in values if v.dtype != tf.string])
    fetch_text(case, *[tf.io.encode_base64(v) for v in values if v.dtype == tf.string])
    json = case.feed("json", np.array([
        b'{"features":{"feature":{"a":{"int64List":{"value":["1","2"]}}}}}', b'{"features":{"feature":{"b":{"floatList":'
        b'{"value":[1.5]}}}}}', b'{"features":{"feature":{"c":{"bytesList":{"value":["YWI="]}}}}}', b"{}"]), (None,))
    fetch_text(case, tf.io.encode_base64(tf.io.decode_json_example(json)))
