# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms, with their gradients."""
from make import golden, tf


@golden(tolerance=1e-4)
def fourier(case):
    x = case.feed("x", case.floats(2, 6, 10), (None, 6, 10))
    z = tf.complex(x, tf.roll(x, 1, 2))
    spectra = [tf.signal.fft(z), tf.signal.ifft(z), tf.signal.fft2d(z), tf.signal.ifft2d(z), tf.signal.rfft(x),
               tf.signal.rfft2d(x), tf.signal.fft3d(z)]
    ys = [tf.abs(s) for s in spectra]
    ys += [tf.signal.irfft(z), tf.stop_gradient(tf.signal.irfft(z, [7])), tf.signal.irfft2d(z)]
    case.fetch_with_gradients(ys, [x])


@golden(tolerance=1e-4)
def fourier_of_volumes(case):
    x = case.feed("x", case.floats(2, 4, 3, 6), (None, 4, 3, 6))
    spectrum = tf.raw_ops.RFFT3D(input=x, fft_length=[4, 3, 6])
    case.fetch(tf.abs(spectrum), tf.raw_ops.IRFFT3D(input=spectrum, fft_length=[4, 3, 6]),
               tf.abs(tf.raw_ops.RFFT3D(input=x, fft_length=[3, 2, 5])))
