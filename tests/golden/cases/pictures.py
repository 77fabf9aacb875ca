# SPDX-License-Identifier: Apache-2.0
"""Images: sizes, crops, colours and boxes, with gradients where there are any."""
import numpy as np

from make import golden, tf, tf1

R = tf.raw_ops


@golden(tolerance=1e-4)
def resized(case):
    x = case.feed("x", case.floats(2, 3, 4, 2), (None, None, None, 2))
    ys = []
    for size in ([5, 7], [2, 3]):
        for flags in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
            for op in (R.ResizeBilinear, R.ResizeBicubic, R.ResizeNearestNeighbor):
                ys.append(op(images=x, size=size, **flags))
    case.fetch_with_gradients(ys, [x])
    case.fetch(R.ResizeArea(images=x, size=[5, 7]), R.ResizeArea(images=x, size=[2, 3]))


@golden(tolerance=1e-4)
def scaled(case):
    """Sizes by the kernels of the second version, and images moved."""
    x = case.feed("x", case.floats(2, 5, 4, 2), (None, 5, 4, 2))
    methods = ["lanczos3", "lanczos5", "gaussian", "mitchellcubic", "bilinear", "bicubic"]
    ys = [tf.image.resize(x, size, method, antialias=True) for method in methods for size in ([8, 3], [2, 7])]
    for kernel in ("box", "triangle", "keyscubic", "lanczos1"):
        for antialias in (False, True):
            ys.append(R.ScaleAndTranslate(images=x, size=[4, 5], scale=[0.6, 1.3], translation=[0.7, -1.2],
                                          kernel_type=kernel, antialias=antialias))
    case.fetch_with_gradients(ys, [x])


@golden(tolerance=1e-4)
def crops(case):
    x = case.feed("x", case.floats(2, 5, 4, 2), (None, 5, 4, 2))
    boxes = case.feed("boxes", np.float32([[0.1, 0.2, 0.8, 0.7], [0.9, 0.1, 0.3, 0.8], [-0.5, 0, 1.5, 1]]), (None, 4))
    at = tf.constant([0, 1, 1])
    ys = [tf.image.crop_and_resize(x, boxes, at, [3, 4], extrapolation_value=0.5),
          tf.image.crop_and_resize(x, boxes, at, [1, 1])]
    case.fetch_with_gradients(ys, [x, boxes])
    near = tf.image.crop_and_resize(x, tf.stop_gradient(boxes), at, [2, 3], method="nearest")
    case.fetch_with_gradients([near], [x])


@golden(tolerance=1e-4)
def colours(case):
    x = case.feed("x", case.floats(2, 3, 5, 3, low=0), (None, 3, 5, 3))
    case.fetch_with_gradients([tf.image.rgb_to_hsv(x)], [x])
    case.fetch(tf.image.hsv_to_rgb(x), tf.image.adjust_hue(x, 0.3), tf.image.adjust_hue(x, -0.7),
               tf.image.adjust_saturation(x, 1.7), tf.image.adjust_contrast(x, 0.4))
    boxes = case.feed("boxes", case.floats(9, 4, low=0, seed=3), (None, 4))
    scores = case.feed("scores", case.floats(9, low=0, seed=4), (None,))
    case.fetch(tf.image.non_max_suppression(boxes, scores, 5, 0.2),
               tf.image.non_max_suppression(boxes, scores, 9, 0.3, score_threshold=0.4),
               *tf.image.non_max_suppression_padded(boxes, scores, 9, 0.1, pad_to_max_output_size=True))


@golden()
def drawn(case):
    first, size = case.floats(2, 12, 2, low=-0.3, high=0.8), case.floats(2, 12, 2, low=-0.1, high=0.7, seed=2)
    boxes = case.feed("boxes", np.concatenate([first, first + size], 2), (None, 12, 4))
    for channels in (1, 3, 4):
        x = case.feed(f"x{channels}", case.floats(2, 7, 9, channels), (None, 7, 9, channels))
        case.fetch(tf1.image.draw_bounding_boxes(x, boxes), R.DrawBoundingBoxesV2(
            images=x, boxes=boxes, colors=case.floats(3, channels, seed=2)))


@golden()
def detections(case):
    boxes = case.feed("boxes", case.floats(9, 4, low=0, high=1.2, seed=3), (None, 4))
    scores = case.feed("scores", case.floats(9, low=0, seed=4), (None,))
    for sigma in (0.0, 0.5):
        case.fetch(*tf.image.non_max_suppression_with_scores(boxes, scores, 8, 0.3, 0.1, sigma))
    overlaps = case.feed("overlaps", case.floats(9, 9, low=0, seed=5), (None, None))
    case.fetch(tf.image.non_max_suppression_overlaps(overlaps, scores, 5, 0.7, 0.1))
    classes = case.feed("classes", case.floats(2, 6, 3, low=0, seed=6), (None, 6, 3))
    for kinds, pad, clip in ((1, False, True), (3, True, False)):
        four = case.feed(f"boxes{kinds}", case.floats(2, 6, kinds, 4, low=-0.2, seed=7), (None, 6, kinds, 4))
        case.fetch(*tf.image.combined_non_max_suppression(four, classes, 2, 9, 0.2, 0.3, pad, clip))


@golden()
def suppression(case):
    """The older forms of non-maximum suppression."""
    boxes = case.feed("boxes", case.floats(9, 4, low=0, high=1.2, seed=3), (None, 4))
    scores = case.feed("scores", case.floats(9, low=0, seed=4), (None,))
    case.fetch(R.NonMaxSuppression(boxes=boxes, scores=scores, max_output_size=6, iou_threshold=0.3),
               R.NonMaxSuppressionV2(boxes=boxes, scores=scores, max_output_size=6, iou_threshold=0.2),
               *R.NonMaxSuppressionV4(boxes=boxes, scores=scores, max_output_size=7, iou_threshold=0.3, score_threshold=0.1,
                                      pad_to_max_output_size=True))


@golden()
def projected(case):
    """Images through projective transforms, with the gradients that TensorFlow has."""
    x = case.feed("x", case.floats(2, 5, 4, 2, low=0))
    turns = case.feed("turns", np.float32([[0.8, 0.6, -0.5, -0.6, 0.8, 1.5, 0, 0], [1, 0.2, 0.3, 0.1, 0.9, -0.4, 0.05, -0.02]]))
    one = case.feed("one", np.float32([[-1.5, 0.25, 6, 0.5, 2.25, -7, 0.03, 0]]))
    for transforms in (turns, one):
        for mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
            for interpolation in ("NEAREST", "BILINEAR"):
                y = tf.raw_ops.ImageProjectiveTransformV3(images=x, transforms=transforms, output_shape=[6, 3], fill_value=0.5,
                                                          interpolation=interpolation, fill_mode=mode)
                case.fetch_with_gradients([y], [x])
    case.fetch(tf.raw_ops.ImageProjectiveTransformV2(images=tf.cast(x * 200, tf.uint8), transforms=turns, output_shape=[5, 4],
                                                     interpolation="BILINEAR"))
