"""Active learning: strategies that choose the next round of unasked pairs from the labels so far.

A strategy fits a posterior over utilities to the labels and scores candidate pairs. It may return fewer pairs than
requested, but never one that was already asked about.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from laurel.arrays import IntArray
from laurel.feedback.pairs import UnaskedPairs
from laurel.feedback.posterior import CaptionPosterior, EmbeddingPosterior, Labels, Posterior

CANDIDATES = 20_000
"""Maximum number of candidate pairs per round, but at least five per chosen pair."""
DRAWS, GAPS = 4, (1, 2, 3, 5, 8, 16, 64)
"""Half of the candidates are pairs GAPS places apart in DRAWS rankings that are drawn from the posterior."""
MEMBERS = 5
"""Members of the ensemble whose spread measures disagreement."""

PairIndices = tuple[IntArray, IntArray]


class _OnEmbeddings:
    """A strategy with a posterior over utilities that are linear in the captions' embeddings (N, E)."""

    def __init__(self, embeddings: npt.NDArray[np.floating]) -> None:
        self._posterior = EmbeddingPosterior(embeddings)


class Information(_OnEmbeddings):
    """Pairs with the most expected information about the weights of a linear utility of the embedding (BALD).

    A round is chosen greedily, each pair as if the previous one had been answered according to the posterior, so that
    the pairs of a round are not redundant. (Houlsby et al. 2011, arXiv 1112.5745, on a Laplace posterior.)
    """

    def choose(self, n: int, labels: Labels, unasked: UnaskedPairs, rng: np.random.Generator) -> PairIndices:
        """Return up to n unasked pairs, none twice."""
        posterior = self._posterior
        posterior.fit(labels)
        first, second = _candidates(n, posterior, unasked, rng)
        mean, variance = posterior.differences(first, second)
        score = posterior.likelihood.information(mean, variance)
        if len(first) > 20 * n:  # the round is chosen among the pairs with the best scores at its start
            best = np.argsort(-score, kind="stable")[: 20 * n]
            first, second = first[best], second[best]
            mean, variance, score = mean[best], variance[best], score[best]
        differences = posterior.features[first] - posterior.features[second]
        covariance = posterior.covariance.copy()
        period = max(1, n // 50)  # between quadratures, scores are scaled down with their variances
        chosen: list[int] = []
        for number in range(min(n, len(first))):
            if number % period == 0:
                score = posterior.likelihood.information(mean, variance)
                score[chosen] = -1.0
            best_one = int(score.argmax())
            chosen.append(best_one)
            direction = covariance @ differences[best_one]
            expected_shift = posterior.likelihood.expected_shift(mean[[best_one]], variance[[best_one]])
            chance, up, down = (float(value[0]) for value in expected_shift)
            shift = up if rng.random() < chance else -down
            along = differences @ direction / variance[best_one]
            mean = mean + shift * along
            covariance -= up * down * np.outer(direction, direction) / variance[best_one] ** 2
            reduced = (variance - up * down * along**2).clip(1e-12)
            score *= reduced / variance
            score[best_one] = -1.0
            variance = reduced
        return first[chosen], second[chosen]


class Disagreement(_OnEmbeddings):
    """Pairs on which the members of an ensemble, each fitted to a resample of the labels, differ most (PEBBLE)."""

    def choose(self, n: int, labels: Labels, unasked: UnaskedPairs, rng: np.random.Generator) -> PairIndices:
        if not len(labels):  # without labels, members do not differ
            return unasked.draw(n, rng)
        self._posterior.fit(labels)
        first, second = unasked.draw(max(CANDIDATES, 5 * n), rng)
        members = self._posterior.members(labels, MEMBERS, rng)
        p = self._posterior.likelihood.p_first(members[:, first] - members[:, second])
        best = np.argsort(-p.std(axis=0), kind="stable")[:n]
        return first[best], second[best]


class Ranking:
    """Pairs with the most expected information about the order of captions with independent utilities (TrueSkill).

    At first every caption is paired with an arbitrary other one, later with one of similar rank, as in a merge sort;
    uncertain captions are paired more often. It needs no embedding. Within a round, a caption's variance already
    includes the expected answers to its pairs.
    """

    def __init__(self, size: int) -> None:
        self._posterior = CaptionPosterior(size)

    def choose(self, n: int, labels: Labels, unasked: UnaskedPairs, rng: np.random.Generator) -> PairIndices:
        posterior = self._posterior
        posterior.fit(labels)
        likelihood = posterior.likelihood
        firsts, seconds = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        share = max(1, unasked.size // 4)
        while len(firsts) < n:
            first, second = _without(*_candidates(n, posterior, unasked, rng), firsts, seconds)
            if not len(first):
                break
            mean, variance = posterior.differences(first, second)
            score = likelihood.information(mean, variance)
            rows = _matching(first, second, np.argsort(-score, kind="stable"))[: min(share, n - len(firsts))]
            first, second = first[rows], second[rows]
            _, up, down = likelihood.expected_shift(mean[rows], variance[rows])
            weight = up * down / variance[rows] ** 2
            for ends in (first, second):
                posterior.variance[ends] -= weight * posterior.variance[ends] ** 2
            firsts, seconds = np.concatenate([firsts, first]), np.concatenate([seconds, second])
        return firsts, seconds


class Nearby(_OnEmbeddings):
    """Pairs of nearby captions: in embedding space while there are no labels, then in estimated rank."""

    def choose(self, n: int, labels: Labels, unasked: UnaskedPairs, rng: np.random.Generator) -> PairIndices:
        posterior = self._posterior
        posterior.fit(labels)
        if not len(labels):
            first, second = _candidates(n, posterior, unasked, rng)
            distance = ((posterior.features[first] - posterior.features[second]) ** 2).sum(axis=1)
            best = np.argsort(distance, kind="stable")[:n]
            return first[best], second[best]
        order = np.argsort(posterior.utilities, kind="stable")
        firsts, seconds = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        for gap in range(1, len(order)):
            first, second = unasked.fresh(order[:-gap], order[gap:])
            rows = rng.permutation(len(first))[: n - len(firsts)]
            firsts, seconds = np.concatenate([firsts, first[rows]]), np.concatenate([seconds, second[rows]])
            if len(firsts) == n:
                break
        return firsts, seconds


Strategy = Information | Disagreement | Ranking | Nearby
"""Each chooses a round as `Information` does."""


def _candidates(n: int, posterior: Posterior, unasked: UnaskedPairs, rng: np.random.Generator) -> PairIndices:
    """Return unasked candidate pairs in random order: all of them if they are few.

    Otherwise half of them are drawn at random, and half are neighbours in rankings drawn from the posterior (Thompson
    sampling), which are the uncertain pairs.
    """
    wanted = max(CANDIDATES, 5 * n)
    if unasked.size * (unasked.size - 1) // 2 <= wanted:
        return unasked.draw(wanted, rng)
    drawn = [unasked.draw(wanted // 2, rng)]
    for _ in range(DRAWS):
        order = np.argsort(posterior.draw(rng), kind="stable")
        for gap in GAPS:
            rows = rng.permutation(len(order) - gap)[: wanted // (2 * DRAWS * len(GAPS))]
            drawn.append((order[rows], order[rows + gap]))
    firsts, seconds = zip(*drawn, strict=True)
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    mixed = rng.permutation(len(first))
    return unasked.fresh(first[mixed], second[mixed])


def _without(first: IntArray, second: IntArray, firsts: IntArray, seconds: IntArray) -> PairIndices:
    """Leave out the pairs that this round has already."""
    size = int(max(first.max(initial=0), second.max(initial=0), firsts.max(initial=0), seconds.max(initial=0))) + 1
    keys = np.minimum(first, second) * size + np.maximum(first, second)
    left = ~np.isin(keys, np.minimum(firsts, seconds) * size + np.maximum(firsts, seconds))
    return first[left], second[left]


def _matching(first: IntArray, second: IntArray, order: IntArray) -> IntArray:
    """Return the rows of pairs that share no caption with an earlier pair, in this order."""
    ends = np.stack([first[order], second[order]], axis=1).ravel()
    new = np.zeros(len(ends), dtype=np.bool_)
    new[np.unique(ends, return_index=True)[1]] = True
    return order[new.reshape(-1, 2).all(axis=1)]
