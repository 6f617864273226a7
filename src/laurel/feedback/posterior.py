"""Posteriors over captions' utilities: a normal prior, a Bradley-Terry likelihood, Laplace's approximation.

`EmbeddingPosterior`: utility is linear in a caption's embedding, so that labels also inform captions that were never
shown. `CaptionPosterior`: an independent utility for each caption. Both choose the prior's scale and the lapse rate by
marginal likelihood (evidence).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import cg

from laurel.arrays import DoubleArray, IntArray
from laurel.feedback.likelihood import Likelihood

SCALES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Standard deviations of a caption's utility that the evidence chooses from, in units of the likelihood's logit."""
LAPSES = (0.001, 0.05, 0.1, 0.2, 0.3)
COMPONENTS = 128
"""At most this many principal components of the embeddings are kept."""
DENSE = 300
"""Up to this many captions, linear systems are solved densely; otherwise by conjugate gradients."""
NEWTON, HALVINGS = 30, 10
"""At most this many steps to the mode, and halvings of a step that overshoots."""
CONVERGED = 1e-3
"""Gain of the log-posterior per 1,000 labels below which the mode counts as reached."""


@dataclass(frozen=True)
class Labels:
    """P labelled pairs of captions."""

    first: IntArray
    second: IntArray
    p_first: DoubleArray
    """(P,) probability that the first is better; 1/2 for ties, never NaN."""

    def __len__(self) -> int:
        return len(self.first)

    @staticmethod
    def empty() -> Labels:
        """Return no labels."""
        return Labels(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))

    def with_more(self, first: IntArray, second: IntArray, p_first: Sequence[float | None] | DoubleArray) -> Labels:
        """Return these labels and new ones; pairs without a label (None or NaN) are left out."""
        p = np.asarray(p_first, dtype=np.float64)
        labelled = ~np.isnan(p)
        return Labels(
            np.concatenate([self.first, first[labelled]]),
            np.concatenate([self.second, second[labelled]]),
            np.concatenate([self.p_first, p[labelled]]),
        )

    def __getitem__(self, rows: IntArray) -> Labels:
        return Labels(self.first[rows], self.second[rows], self.p_first[rows])


@dataclass(frozen=True, slots=True)
class _Mode:
    """The likeliest parameters at one choice of scale and lapse."""

    parameters: DoubleArray
    curvature: DoubleArray
    """Curvature of the log-posterior there: a matrix, or its diagonal."""
    evidence: float


def _climb(evaluate: Callable[[int, int], _Mode], start: tuple[int, int]) -> tuple[_Mode, tuple[int, int]]:
    """Choose scale and lapse by hill climbing on the evidence from `start`."""
    evaluated = {start: evaluate(*start)}
    cell = start
    while True:
        for scale, lapse in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            near = cell[0] + scale, cell[1] + lapse
            if 0 <= near[0] < len(SCALES) and 0 <= near[1] < len(LAPSES) and near not in evaluated:
                evaluated[near] = evaluate(*near)
        best = max(evaluated, key=lambda choice: evaluated[choice].evidence)
        if best == cell:
            return evaluated[cell], cell
        cell = best


def _mode(
    start: DoubleArray,
    objective: Callable[[DoubleArray], float],
    step: Callable[[DoubleArray], DoubleArray],
    labels: int,
) -> tuple[DoubleArray, float]:
    """Maximise by damped Newton steps; return the mode and the objective there."""
    mode, value = start, objective(start)
    enough = CONVERGED * max(1.0, labels / 1000)
    for _ in range(NEWTON):
        change, size = step(mode), 1.0
        for _ in range(HALVINGS):
            candidate = mode + size * change
            reached = objective(candidate)
            if reached >= value:
                break
            size /= 2
        else:
            return mode, value
        mode, gain, value = candidate, reached - value, reached
        if gain < enough:
            break
    return mode, value


class EmbeddingPosterior:
    """Utility linear in the embedding, with the full covariance of the weights.

    Args:
        embeddings: (N, E), one row per caption.
    """

    def __init__(self, embeddings: npt.NDArray[np.floating]) -> None:
        centred = embeddings.astype(np.float64) - embeddings.mean(axis=0, dtype=np.float64)
        values, vectors = np.linalg.eigh(centred.T @ centred)
        kept = np.flatnonzero(values > 1e-3 * values.max(initial=0.0))[::-1][:COMPONENTS]
        features = centred @ vectors[:, kept]
        width = np.sqrt((features**2).sum(axis=1).mean()) if len(kept) else 1.0
        self.features: DoubleArray = features / width
        """(N, F); with a standard normal prior of the weights a caption's utility has a variance of about 1."""
        self._choice = 2, 1
        self._weights = np.zeros(len(kept))
        self.covariance: DoubleArray = np.eye(len(kept)) * SCALES[self._choice[0]] ** 2
        """(F, F) of the weights."""
        self.likelihood = Likelihood(LAPSES[self._choice[1]])

    @property
    def utilities(self) -> DoubleArray:
        """The mean (N,)."""
        return self.features @ self._weights

    def fit(self, labels: Labels) -> None:
        """Fit to these labels only; the search for a scale begins at that of the last fit. Without labels, keep it."""
        if not len(labels) or not self.features.shape[1]:
            return
        differences = self.features[labels.first] - self.features[labels.second]
        mode, self._choice = _climb(
            lambda scale, lapse: self._at(differences, labels.p_first, scale, lapse), self._choice
        )
        self._weights = mode.parameters
        self.covariance = cho_solve(cho_factor(mode.curvature), np.eye(len(mode.parameters)))
        self.likelihood = Likelihood(LAPSES[self._choice[1]])

    def members(self, labels: Labels, count: int, rng: np.random.Generator) -> DoubleArray:
        """Return utilities (K, N) by each of K members, fitted to a bootstrap resample of the labels."""
        utilities = []
        for _ in range(count):
            drawn = labels[rng.integers(0, len(labels), len(labels))]
            differences = self.features[drawn.first] - self.features[drawn.second]
            utilities.append(self.features @ self._at(differences, drawn.p_first, *self._choice).parameters)
        return np.stack(utilities)

    def _at(self, differences: DoubleArray, p_first: DoubleArray, scale: int, lapse: int) -> _Mode:
        likelihood, prior = Likelihood(LAPSES[lapse]), SCALES[scale] ** -2

        def objective(w: DoubleArray) -> float:
            return likelihood.log(differences @ w, p_first) - prior / 2 * float(w @ w)

        def curvature(w: DoubleArray) -> DoubleArray:
            matrix: DoubleArray = (differences * likelihood.precision(differences @ w)[:, None]).T @ differences
            return matrix + prior * np.eye(len(w))

        def step(w: DoubleArray) -> DoubleArray:
            gradient = differences.T @ likelihood.slope(differences @ w, p_first) - prior * w
            change: DoubleArray = cho_solve(cho_factor(curvature(w)), gradient)
            return change

        weights, value = _mode(self._weights, objective, step, len(p_first))
        matrix = curvature(weights)
        log_determinant = float(np.linalg.slogdet(matrix)[1])
        return _Mode(weights, matrix, value - (log_determinant - len(weights) * np.log(prior)) / 2)

    def differences(self, first: IntArray, second: IntArray) -> tuple[DoubleArray, DoubleArray]:
        """Return mean and variance (C,) of differences of utilities."""
        differences = self.features[first] - self.features[second]
        variance = ((differences @ self.covariance) * differences).sum(axis=1)
        return differences @ self._weights, variance.clip(1e-12)

    def draw(self, rng: np.random.Generator) -> DoubleArray:
        """Return utilities (N,) drawn from the posterior."""
        values, vectors = np.linalg.eigh(self.covariance)
        noise = np.sqrt(values.clip(0)) * rng.normal(size=len(values))
        return self.features @ (self._weights + vectors @ noise)


class CaptionPosterior:
    """An independent utility for each of N captions; treating their errors as independent makes it scale."""

    def __init__(self, size: int) -> None:
        self._choice = 2, 1
        self._mean = np.zeros(size)
        self.variance: DoubleArray = np.full(size, SCALES[self._choice[0]] ** 2)
        """(N,)."""
        self.likelihood = Likelihood(LAPSES[self._choice[1]])

    @property
    def utilities(self) -> DoubleArray:
        return self._mean

    def fit(self, labels: Labels) -> None:
        if not len(labels):
            return
        mode, self._choice = _climb(lambda scale, lapse: self._at(labels, scale, lapse), self._choice)
        self._mean, self.variance = mode.parameters, 1 / mode.curvature
        self.likelihood = Likelihood(LAPSES[self._choice[1]])

    def _at(self, labels: Labels, scale: int, lapse: int) -> _Mode:
        first, second, p_first = labels.first, labels.second, labels.p_first
        likelihood, prior, size = Likelihood(LAPSES[lapse]), SCALES[scale] ** -2, len(self._mean)

        def objective(u: DoubleArray) -> float:
            return likelihood.log(u[first] - u[second], p_first) - prior / 2 * float(u @ u)

        def diagonal(precision: DoubleArray) -> DoubleArray:
            at_either = np.bincount(first, precision, size) + np.bincount(second, precision, size)
            return at_either.astype(np.float64) + prior

        def step(u: DoubleArray) -> DoubleArray:
            slope = likelihood.slope(u[first] - u[second], p_first)
            gradient = np.bincount(first, slope, size) - np.bincount(second, slope, size) - prior * u
            precision = likelihood.precision(u[first] - u[second])
            return _solve(first, second, precision, diagonal(precision), gradient)

        utilities, value = _mode(self._mean, objective, step, len(p_first))
        curvature = diagonal(likelihood.precision(utilities[first] - utilities[second]))
        log_determinant = float(np.log(curvature).sum())
        return _Mode(utilities, curvature, value - (log_determinant - size * np.log(prior)) / 2)

    def differences(self, first: IntArray, second: IntArray) -> tuple[DoubleArray, DoubleArray]:
        return self._mean[first] - self._mean[second], self.variance[first] + self.variance[second]

    def draw(self, rng: np.random.Generator) -> DoubleArray:
        drawn: DoubleArray = self._mean + np.sqrt(self.variance) * rng.normal(size=len(self._mean))
        return drawn


Posterior = EmbeddingPosterior | CaptionPosterior


def _solve(
    first: IntArray, second: IntArray, precision: DoubleArray, diagonal: DoubleArray, right: DoubleArray
) -> DoubleArray:
    """Solve a system of the graph's Laplacian plus the prior: densely if it is small, otherwise by conjugate
    gradients.
    """
    size = len(diagonal)
    if size <= DENSE:
        matrix = np.diag(diagonal)
        np.subtract.at(matrix, (first, second), precision)
        np.subtract.at(matrix, (second, first), precision)
        dense: DoubleArray = cho_solve(cho_factor(matrix), right)
        return dense
    upper = coo_array((precision, (first, second)), shape=(size, size)).tocsr()
    system = diags_array(diagonal).tocsr() - upper - upper.T
    solution, _ = cg(system, right, rtol=1e-3, maxiter=100, M=diags_array(1 / diagonal))
    found: DoubleArray = solution
    return found
