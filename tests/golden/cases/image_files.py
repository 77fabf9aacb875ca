# SPDX-License-Identifier: Apache-2.0
"""Pictures in files: PNG, JPEG, BMP, GIF."""
import struct
import zlib

import numpy as np

from make import golden, tf, tf1


def encoded(op, pixels, **options):
    with tf1.Graph().as_default(), tf1.Session() as session:
        return session.run(op(pixels, **options))


def png(depth, colour, width, rows, palette=b"", alphas=b""):
    """A PNG of kinds that TensorFlow does not write."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, len(rows), depth, colour, 0, 0, 0)
    parts = chunk(b"IHDR", head) + (chunk(b"PLTE", palette) if palette else b"")
    parts += chunk(b"tRNS", alphas) if alphas else b""
    parts += chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def gif(*frames, transparent=None):
    """A GIF of frames of 4 colours, (left, top, width, height, interlaced, pixels), without compression."""
    out = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x81, 0, 0) + bytes(range(0, 240, 20))
    for *place, interlaced, pixels in frames:
        codes = sum(c << 3 * i for i, c in enumerate(c for p in [*pixels, 5] for c in (4, p)))
        data = codes.to_bytes((6 * len(pixels) + 13) // 8, "little")
        out += b"!\xf9\4\1\0\0" + bytes([transparent, 0]) if transparent is not None else b""
        out += b"," + struct.pack("<HHHHBB", *place, 0x40 * interlaced, 2) + bytes([len(data)]) + data + b"\0"
    return out + b";"


@golden()
def animations(case):
    one = gif((0, 0, 3, 9, True, [i * i % 4 for i in range(27)]))
    small = gif((1, 1, 2, 1, False, [1, 2]), (0, 0, 1, 3, False, [3, 2, 1]), (1, 2, 2, 1, False, [3, 3]))
    holes = gif((0, 0, 3, 2, False, [1, 1, 0, 2, 1, 3]), (1, 0, 2, 2, False, [2, 2, 1, 0]), transparent=2)
    for data in (one, small, holes):
        case.fetch(tf.io.decode_gif(data), tf.io.decode_image(data), tf.io.decode_image(data, dtype=tf.float32))
        case.fetch(tf.io.decode_image(data, dtype=tf.uint16, expand_animations=False))
    case.fetch(tf.io.decode_png(one))


@golden()
def pictures(case):
    n = {c: case.ints(3, 4, c, high=256, dtype=np.uint8) for c in (1, 2, 3, 4)}
    files = [encoded(tf.io.encode_png, p) for p in n.values()]
    files.append(encoded(tf.io.encode_png, n[3].astype(np.uint16) * 251))
    files.append(png(2, 3, 4, [b"\x1b", b"\xe4"], bytes(range(0, 240, 20))))
    files.append(png(2, 3, 4, [b"\x1b", b"\xe4"], bytes(range(0, 240, 20)), b"\x00\x80"))
    files.append(png(4, 0, 3, [b"\x18\xf0", b"\x7a\x30"]))
    files.append(png(8, 0, 2, [b"\x10\x20", b"\x30\x40"], alphas=b"\x00\x20"))
    files.append(png(1, 0, 9, [b"\xa5\x80"]))
    for data in map(tf.constant, files):
        for channels in (0, 1, 3, 4):
            case.fetch(tf.io.decode_png(data, channels))
        case.fetch(tf.io.decode_png(data, dtype=tf.uint16))
    case.fetch(tf.image.decode_image(files[2], dtype=tf.float32), tf.image.decode_image(files[0], dtype=tf.uint16))
    for height, bits in ((2, 24), (-2, 24), (2, 32), (3, 8)):
        rows = bytes(range(1, 1 + (3 * bits // 8 + 3) // 4 * 4 * abs(height)))
        head = struct.pack("<IHHI", 54 + len(rows), 0, 0, 54)
        head += struct.pack("<IiiHHIIiiII", 40, 3, height, 1, bits, 0, 0, 0, 0, 0, 0)
        case.fetch(tf.io.decode_bmp(b"BM" + head + rows))


@golden(tolerance=0.02)
def jpegs(case):
    smooth = np.add.outer(np.arange(17) * 9, np.arange(19) * 5).astype(np.uint8)
    colours = np.stack([smooth, smooth[::-1], 255 - smooth], -1)
    files = [encoded(tf.io.encode_jpeg, smooth[..., None]), encoded(tf.io.encode_jpeg, colours),
             encoded(tf.io.encode_jpeg, colours, progressive=True, chroma_downsampling=False)]
    for data in map(tf.constant, files):
        images = [tf.io.decode_jpeg(data), tf.io.decode_jpeg(data, 1), tf.io.decode_jpeg(data, 3, ratio=2),
                  tf.io.decode_jpeg(data, fancy_upscaling=False, dct_method="INTEGER_ACCURATE"),
                  tf.io.decode_and_crop_jpeg(data, [3, 2, 5, 7]), tf.io.decode_image(data, dtype=tf.uint16)]
        case.fetch(*[tf.cast(i, tf.float32) for i in images])
        case.fetch(tf.image.decode_image(data, dtype=tf.float32), tf.io.extract_jpeg_shape(data))


@golden(tolerance=0.02)
def jpeg_crops(case):
    """Parts of pictures whose colours are in a lower resolution: they are spread as if the picture ended with the part."""
    colours = case.ints(21, 37, 3, high=256, dtype=np.uint8)
    windows = [[3, 2, 5, 7], [1, 5, 9, 11], [5, 16, 5, 2], [7, 16, 6, 21], [20, 36, 1, 1], [0, 9, 2, 1]]
    for options in ({}, {"chroma_downsampling": False}, {"progressive": True}):
        data = tf.constant(encoded(tf.io.encode_jpeg, colours, quality=90, **options))
        for window in windows:
            images = [tf.io.decode_and_crop_jpeg(data, window), tf.io.decode_and_crop_jpeg(data, window, 1),
                      tf.io.decode_and_crop_jpeg(data, window, fancy_upscaling=False)]
            case.fetch(*[tf.cast(i, tf.float32) for i in images])
        case.fetch(tf.cast(tf.io.decode_and_crop_jpeg(data, [2, 3, 7, 9], ratio=2), tf.float32))


@golden()
def written(case):
    """What is written as PNG and JPEG and read again."""
    x = case.feed("x", case.ints(7, 9, 3, high=256, dtype=np.uint8), (None, 9, 3))
    deep = tf.cast(x, tf.uint16) * 250
    for pixels in (x, x[..., :1], deep):
        case.fetch(tf.io.decode_png(tf.raw_ops.EncodePng(image=pixels), dtype=pixels.dtype))
    smooth = tf.cast(tf.reshape(tf.range(16 * 16), (16, 16, 1)), tf.uint8)
    case.fetch(tf.io.decode_jpeg(tf.raw_ops.EncodeJpeg(image=smooth, quality=90)),
               tf.io.decode_jpeg(tf.raw_ops.EncodeJpegVariableQuality(images=smooth, quality=75)))
