# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms, with their gradients."""
import numpy as np

from make import golden, tf


@golden("fourier", tolerance=1e-4, dtype=np.float32)
@golden("fourier_float64", tolerance=1e-10, dtype=np.float64)
def fourier(case, dtype):
    x = case.feed("x", case.floats(2, 6, 10).astype(dtype), (None, 6, 10))
    z = tf.complex(x, tf.roll(x, 1, 2))
    spectra = [tf.signal.fft(z), tf.signal.ifft(z), tf.signal.fft2d(z), tf.signal.ifft2d(z), tf.signal.rfft(x),
               tf.signal.rfft2d(x), tf.signal.fft3d(z)]
    ys = [tf.abs(s) for s in spectra]
    ys += [tf.signal.irfft(z), tf.stop_gradient(tf.signal.irfft(z, [7])), tf.signal.irfft2d(z)]
    case.fetch_with_gradients(ys, [x])


@golden("fourier_of_volumes", tolerance=1e-4, dtype=np.float32)
@golden("fourier_of_volumes_float64", tolerance=1e-10, dtype=np.float64)
def fourier_of_volumes(case, dtype):
    x = case.feed("x", case.floats(2, 4, 3, 6).astype(dtype), (None, 4, 3, 6))
    complex_dtype = np.result_type(dtype, np.complex64)
    spectrum = tf.raw_ops.RFFT3D(input=x, fft_length=[4, 3, 6], Tcomplex=complex_dtype)
    case.fetch(tf.abs(spectrum), tf.raw_ops.IRFFT3D(input=spectrum, fft_length=[4, 3, 6], Treal=dtype),
               tf.abs(tf.raw_ops.RFFT3D(input=x, fft_length=[3, 2, 5], Tcomplex=complex_dtype)))
