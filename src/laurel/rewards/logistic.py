"""Logistic regression, several at once over the same rows: convex, so that the same labels give the same weights."""

from __future__ import annotations

import numpy as np

from laurel.arrays import Array, DoubleArray

RIDGE = 1e-3
"""Penalty of `classifier`."""


def classifier(rows: DoubleArray, answers: DoubleArray) -> DoubleArray:
    """Return the weights (F + 1,) of a classifier of rows (P, F), the intercept, which has no penalty, at the end.

    Args:
        answers: (P,) probabilities of yes.
    """
    design = np.column_stack([rows, np.ones(len(rows))])
    penalized = (np.arange(design.shape[1]) < design.shape[1] - 1).astype(np.float64)
    return logistic(design, answers, np.ones((len(rows), 1)), np.array([RIDGE]), penalized)[:, 0]


def logistic(
    rows: Array,
    targets: Array,
    weights: Array,
    ridges: DoubleArray,
    penalized: DoubleArray | None = None,
) -> DoubleArray:
    """Minimise, for each of K columns, the mean cross-entropy of sigmoid(rows @ w) plus ridge |w|^2, by L-BFGS.

    Args:
        rows: (P, F), in the precision to compute in; single precision takes half the time and memory, and ends about
            1e-4 from the optimum.
        targets: (P,) probabilities.
        weights: (P, K) how much each row counts in each column.
        ridges: (K,).
        penalized: (F,) 0 for features without a penalty, such as an intercept; None: all have one.

    Returns:
        (F, K) weights.
    """
    import torch
    from scipy.linalg import solve_triangular
    from scipy.optimize import minimize

    tensor = torch.from_numpy(rows)
    counted = (weights / np.maximum(weights.sum(axis=0), 1e-12)).astype(rows.dtype)
    targets = targets.astype(rows.dtype)[:, None]
    penalties = ridges * (np.ones((rows.shape[1], 1)) if penalized is None else penalized[:, None])
    shape = rows.shape[1], len(ridges)
    # preconditioning: the Hessian is at most a quarter of the rows' second moments, and in the coordinates of the root
    # of that bound all directions are about equally curved, so that a dozen steps are enough
    moments = (tensor.T @ tensor).numpy().astype(np.float64) / (4 * len(rows))
    floor = 1e-9 * max(float(np.trace(moments)), 1e-9)
    root = np.linalg.cholesky(moments + np.diag(2 * penalties.min(axis=1) + floor))

    def loss(flat: DoubleArray) -> tuple[float, DoubleArray]:
        w = solve_triangular(root, flat.reshape(shape), lower=True, trans="T")
        logits = (tensor @ torch.from_numpy(w.astype(rows.dtype))).numpy()
        tail = np.exp(-np.abs(logits))
        softplus = np.maximum(logits, 0) + np.log1p(tail)
        chance = np.where(logits > 0, 1, tail) / (1 + tail)
        total = (counted * (softplus - targets * logits)).sum(dtype=np.float64) + (penalties * w**2).sum()
        slope = (torch.from_numpy((counted * (chance - targets)).T) @ tensor).numpy().T + 2 * penalties * w
        return float(total), solve_triangular(root, slope, lower=True).reshape(-1)

    exact = rows.dtype == np.float64
    options = {"gtol": 1e-6 if exact else 1e-4, "ftol": 1e-12 if exact else 1e-8, "maxiter": 500}
    optimum = minimize(loss, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options=options)
    return solve_triangular(root, optimum.x.reshape(shape), lower=True, trans="T")
