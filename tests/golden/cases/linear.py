# SPDX-License-Identifier: Apache-2.0
"""Linear algebra, with its gradients."""
import numpy as np

from make import golden, tf


@golden(tolerance=1e-4)
def matrices(case):
    x = case.feed("x", case.floats(2, 3, 3) + 2 * np.eye(3, dtype=np.float32), (None, 3, 3))
    b = case.feed("b", case.floats(2, 3, 2, seed=2), (None, 3, 2))
    symmetric = tf.matmul(x, x, transpose_b=True)
    ys = [
        tf.linalg.inv(x),
        tf.linalg.det(x),
        tf.linalg.slogdet(x)[1],
        tf.linalg.solve(x, b, adjoint=True),
        tf.linalg.triangular_solve(x, b),
        tf.linalg.triangular_solve(x[:1], b, lower=False, adjoint=True),
        tf.linalg.lstsq(x[..., :2], b, l2_regularizer=0.5),
        tf.raw_ops.MatrixSolveLs(matrix=x[..., :2], rhs=b, l2_regularizer=0.5),
        tf.raw_ops.MatrixSolveLs(matrix=x[:, :2], rhs=b[:, :2], l2_regularizer=0.5),
        tf.linalg.cholesky(symmetric),
        tf.linalg.eigh(symmetric)[0],
        tf.linalg.logdet(symmetric),
    ]
    q, r = tf.linalg.qr(x)
    s, u, v = tf.linalg.svd(x)
    tall = tf.linalg.svd(x[..., :2], full_matrices=True)
    values = tf.linalg.svd(x[..., :2, :], compute_uv=False)
    ys += [tf.abs(q), tf.abs(r), s, u * u, v * v, tf.matmul(u, v, adjoint_b=True), tall[1] ** 2, tall[2] ** 2, values]
    case.fetch_with_gradients(ys, [x, b])
    case.fetch(tf.linalg.lstsq(x[..., :2], b, fast=False), tf.linalg.lstsq(x[:, :2], b[:, :2], fast=False))
    case.fetch(tf.linalg.band_part(tf.linalg.cholesky(-symmetric), -1, 0))  # what is above is undefined


@golden(tolerance=1e-4)
def products(case):
    """Batches of products in the former op and the latest, and the gradient of Cholesky's as an op."""
    R = tf.raw_ops
    x = case.feed("x", case.floats(2, 3, 4), (None, 3, 4))
    y = case.feed("y", case.floats(2, 4, 3, seed=2), (None, 4, 3))
    ys = [R.BatchMatMul(x=x, y=y), R.BatchMatMul(x=x, y=x, adj_y=True), R.BatchMatMulV3(x=x, y=y[0], Tout=tf.float32)]
    case.fetch_with_gradients(ys, [x, y])
    whole = tf.cast(tf.round(x * 9), tf.int32)
    case.fetch(R.BatchMatMulV3(x=whole, y=whole, adj_y=True, Tout=tf.int32))
    lower = tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True) + tf.eye(3))
    case.fetch(R.CholeskyGrad(l=lower, grad=tf.linalg.band_part(tf.matmul(x, y), -1, 0)))


@golden(tolerance=1e-4)
def factors(case):
    """LU, eigenvalues of general matrices, roots and logarithms."""
    R = tf.raw_ops
    x = case.feed("x", case.floats(2, 3, 3) + np.diag([1, 2, 4]).astype(np.float32), (None, 3, 3))
    z = case.feed("z", (case.floats(3, 3, seed=2) + 1j * case.floats(3, 3, seed=3) + np.diag([1, 2, 4])).astype("c8"))
    e, v = tf.linalg.eig(x)
    case.fetch_with_gradients([tf.linalg.sqrtm(x), tf.abs(e), tf.abs(tf.linalg.eigvals(x))], [x])
    case.fetch(e, *tf.gradients([tf.abs(e), tf.abs(v)], [x]), tf.abs(v))
    case.fetch(*tf.linalg.lu(x), *tf.linalg.lu(z, output_idx_type=tf.int64))
    e, v = tf.linalg.eig(z)
    case.fetch(e, tf.abs(v), *tf.gradients([tf.abs(e), tf.abs(v)], [z]))
    case.fetch(tf.linalg.sqrtm(z), tf.linalg.logm(z), tf.linalg.sqrtm(-tf.eye(2)), tf.linalg.expm(x),
               R.LogMatrixDeterminant(input=z).sign)


@golden(tolerance=1e-4)
def bands(case):
    R = tf.raw_ops
    d = case.feed("d", case.floats(2, 3, 4) + np.float32([[0], [2], [0]]), (None, 3, 4))
    b = case.feed("b", case.floats(2, 4, 3, seed=2), (None, 4, 3))
    ys = [
        tf.linalg.tridiagonal_solve(d, b, diagonals_format="compact"),
        tf.linalg.tridiagonal_solve(d, b, diagonals_format="compact", partial_pivoting=False),
        tf.linalg.tridiagonal_solve(d, b, diagonals_format="compact", perturb_singular=True),
        tf.linalg.tridiagonal_matmul(d, b, diagonals_format="compact"),
    ]
    for lower in (True, False):
        on = d[:, 1:2] + 1
        bands = tf.concat([on, d[:, :1], d[:, 2:]], 1) if lower else tf.concat([d[:, :1], d[:, 2:], on], 1)
        ys += [tf.linalg.banded_triangular_solve(bands, b, lower=lower, adjoint=a) for a in (False, True)]
        ys.append(tf.linalg.banded_triangular_solve(bands[:1], b, lower=lower))
    case.fetch_with_gradients(ys, [d, b])
    z = tf.complex(d, d[:, ::-1])
    case.fetch(tf.linalg.tridiagonal_solve(z, tf.complex(b, -b), diagonals_format="compact"),
               tf.linalg.banded_triangular_solve(z + 3, tf.complex(b, -b), adjoint=True))
    singular = tf.constant([[1.0, 1, 0], [1, 2, 1], [0, 1, 1]])
    case.fetch(tf.linalg.tridiagonal_solve(singular, tf.eye(3), diagonals_format="compact"),
               R.TridiagonalSolve(diagonals=singular * 0, rhs=tf.eye(3), perturb_singular=True))
