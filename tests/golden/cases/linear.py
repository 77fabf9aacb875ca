# SPDX-License-Identifier: Apache-2.0
"""Linear algebra, with its gradients."""
import numpy as np

from make import golden, tf

R = tf.raw_ops


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
    x = case.feed("x", case.floats(2, 3, 4), (None, 3, 4))
    y = case.feed("y", case.floats(2, 4, 3, seed=2), (None, 4, 3))
    ys = [R.BatchMatMul(x=x, y=y), R.BatchMatMul(x=x, y=x, adj_y=True), R.BatchMatMulV3(x=x, y=y[0], Tout=tf.float32)]
    case.fetch_with_gradients(ys, [x, y])
    whole = tf.cast(tf.round(x * 9), tf.int32)
    case.fetch(R.BatchMatMulV3(x=whole, y=whole, adj_y=True, Tout=tf.int32))
    lower = tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True) + tf.eye(3))
    case.fetch(R.CholeskyGrad(l=lower, grad=tf.linalg.band_part(tf.matmul(x, y), -1, 0)))


@golden("factors", tolerance=1e-4, dtype=np.float32)
@golden("factors_float64", tolerance=1e-10, dtype=np.float64)
def factors(case, dtype):
    """LU, eigenvalues of general matrices, roots and logarithms."""
    x = case.feed("x", (case.floats(2, 3, 3) + np.diag([1, 2, 4])).astype(dtype), (None, 3, 3))
    z = case.feed("z", (case.floats(3, 3, seed=2) + 1j * case.floats(3, 3, seed=3) + np.diag([1, 2, 4])).astype(
        np.result_type(dtype, np.complex64)))
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


@golden(tolerance=1e-4)
def clusters(case):
    """Nearest centers, and points drawn as the first ones."""
    points, centers = case.feed("points", case.floats(40, 3), (None, 3)), case.feed("centers", case.floats(6, 3, seed=2))
    for k in (0, 1, 4, 9):
        case.fetch(*R.NearestNeighbors(points=points, centers=centers, k=tf.constant(k, tf.int64)))
    for seed, retries in ((1, 0), (2 ** 40 + 5, 3), (-7, -1)):
        case.fetch(R.KmeansPlusPlusInitialization(points=points, num_to_sample=tf.constant(7, tf.int64),
                                                  seed=tf.constant(seed, tf.int64),
                                                  num_retries_per_sample=tf.constant(retries, tf.int64)),
                   R.KMC2ChainInitialization(distances=points[:, 0] + 1, seed=tf.constant(seed, tf.int64)))
    same = tf.ones([4, 2])  # of which all are as likely
    case.fetch(R.KmeansPlusPlusInitialization(points=same, num_to_sample=tf.constant(4, tf.int64),
                                              seed=tf.constant(3, tf.int64), num_retries_per_sample=tf.constant(2, tf.int64)))


@golden()
def isotonic(case):
    """The closest numbers that do not grow, in every type, and their gradient as TensorFlow composes it."""
    x = case.feed("x", case.floats(2, 3, 9))
    for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16):
        out = R.IsotonicRegression(input=tf.cast(x, dtype), output_dtype=dtype)
        case.fetch(tf.cast(out.output, tf.float64), out.segments)
    for dtype, out_dtype in ((tf.int8, tf.float32), (tf.int16, tf.float32), (tf.int32, tf.float64), (tf.int64, tf.float64)):
        case.fetch(*R.IsotonicRegression(input=tf.cast(x * 50, dtype), output_dtype=out_dtype))
    rows = tf.reshape(x, [6, 9])
    y, segments = tf.nn.isotonic_regression(rows, decreasing=False)
    case.fetch(segments)
    case.fetch_with_gradients([y], [rows])
