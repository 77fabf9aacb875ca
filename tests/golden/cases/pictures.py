# SPDX-License-Identifier: Apache-2.0
"""Images: sizes, crops, colours and boxes, with gradients where there are any."""
import numpy as np

from make import golden, tf

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
