"""Posteriors by what was planted, and by slow and obvious algebra."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from laurel.feedback import posterior
from laurel.feedback.posterior import CaptionPosterior, EmbeddingPosterior, Labels, Posterior


def labelled(utilities: np.ndarray, n: int, noise: float = 0.0, seed: int = 0) -> Labels:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, len(utilities), n)
    second = (first + rng.integers(1, len(utilities), n)) % len(utilities)
    better = (utilities[first] > utilities[second]) != (rng.random(n) < noise)
    return Labels(first, second, better.astype(np.float64))


EMBEDDINGS = np.random.default_rng(5).normal(size=(60, 6))
PLANTED = EMBEDDINGS @ np.array([3.0, -2.0, 1.0, 0.5, 0.0, -1.0])


def posteriors() -> list[Posterior]:
    return [EmbeddingPosterior(EMBEDDINGS), CaptionPosterior(60)]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_planted_order_is_found(which: int, noise: float) -> None:
    fitted = posteriors()[which]
    fitted.fit(labelled(PLANTED, 1500, noise))
    assert kendalltau(fitted.utilities, PLANTED).statistic > (0.93 if noise == 0 else 0.8)


def test_embeddings_generalise_to_unseen_captions() -> None:
    fitted = EmbeddingPosterior(EMBEDDINGS)
    fitted.fit(labelled(PLANTED[:40], 400))
    assert kendalltau(fitted.utilities[40:], PLANTED[40:]).statistic > 0.85


@pytest.mark.parametrize("which", [0, 1])
def test_lapses_are_found_by_the_evidence(which: int) -> None:
    careful, careless = posteriors()[which], posteriors()[which]
    careful.fit(labelled(PLANTED, 1500))
    careless.fit(labelled(PLANTED, 1500, noise=0.2))
    assert careful.likelihood.lapse <= 0.05
    assert careless.likelihood.lapse >= 0.1


@pytest.mark.parametrize(("noise", "most"), [(0.1, 2), (0.5, 0)])
def test_the_evidence_chooses_no_larger_scale_than_labels_support(noise: float, most: int) -> None:
    """The mode alone fits any labels best with the largest scale."""
    fitted = EmbeddingPosterior(EMBEDDINGS)
    fitted.fit(labelled(PLANTED, 60, noise))
    assert fitted._choice[0] <= most


@pytest.mark.parametrize("which", [0, 1])
def test_the_estimate_is_the_mode_of_the_posterior(which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No small change of the estimate makes labels and prior together likelier."""
    monkeypatch.setattr(posterior, "CONVERGED", 1e-9)
    fitted, labels = posteriors()[which], labelled(PLANTED, 300, 0.1)
    fitted.fit(labels)
    estimate = fitted.utilities
    rng = np.random.default_rng(1)

    def value(utilities: np.ndarray, strength: float) -> float:
        return fitted.likelihood.log(utilities[labels.first] - utilities[labels.second], labels.p_first) - strength

    if isinstance(fitted, EmbeddingPosterior):
        weights = np.linalg.lstsq(fitted.features, estimate, rcond=None)[0]
        changed = [weights + 0.1 * rng.normal(size=len(weights)) for _ in range(30)]
        scale = posterior.SCALES[fitted._choice[0]]
        here = value(estimate, weights @ weights / scale**2 / 2)
        there = [value(fitted.features @ w, w @ w / scale**2 / 2) for w in changed]
    else:
        assert isinstance(fitted, CaptionPosterior)
        scale = posterior.SCALES[fitted._choice[0]]
        changed = [estimate + 0.1 * rng.normal(size=60) for _ in range(30)]
        here = value(estimate, estimate @ estimate / scale**2 / 2)
        there = [value(u, u @ u / scale**2 / 2) for u in changed]
    assert max(there) < here


@pytest.mark.parametrize("which", [0, 1])
def test_more_labels_reduce_the_variance(which: int) -> None:
    few, many = posteriors()[which], posteriors()[which]
    few.fit(labelled(PLANTED, 50, 0.1))
    many.fit(labelled(PLANTED, 3000, 0.1))
    first, second = np.arange(0, 60, 2), np.arange(1, 60, 2)
    of_few, of_many = (fitted.differences(first, second)[1] / fitted.utilities.var() for fitted in (few, many))
    assert np.median(of_many) < np.median(of_few) / 4


@pytest.mark.parametrize("which", [0, 1])
def test_draws_have_the_reported_mean_and_variance(which: int) -> None:
    fitted = posteriors()[which]
    fitted.fit(labelled(PLANTED, 200, 0.1))
    rng = np.random.default_rng(0)
    draws = np.stack([fitted.draw(rng) for _ in range(4000)])
    mean, variance = fitted.differences(np.array([3]), np.array([8]))
    drawn = draws[:, 3] - draws[:, 8]
    assert drawn.mean() == pytest.approx(mean[0], abs=5 * np.sqrt(variance[0] / 4000))
    assert drawn.var() == pytest.approx(variance[0], rel=0.15)
    each = np.arange(60)
    _, variances = fitted.differences(each[:-1], each[1:])
    np.testing.assert_allclose((draws[:, :-1] - draws[:, 1:]).var(axis=0), variances, rtol=0.15)


def test_many_captions_are_solved_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = labelled(PLANTED, 400, 0.1)
    dense, sparse = CaptionPosterior(60), CaptionPosterior(60)
    dense.fit(labels)
    monkeypatch.setattr(posterior, "DENSE", 10)
    sparse.fit(labels)
    np.testing.assert_allclose(sparse.utilities, dense.utilities, atol=0.05)


def test_missing_labels_are_left_out_and_ties_are_not() -> None:
    labels = Labels.empty().with_more(np.arange(4), np.arange(1, 5), [1.0, None, 0.5, float("nan")])
    assert labels.first.tolist() == [0, 2]
    assert labels.p_first.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("which", [0, 1])
def test_only_ties_give_equal_utilities(which: int) -> None:
    fitted = posteriors()[which]
    labels = labelled(PLANTED, 300)
    fitted.fit(Labels(labels.first, labels.second, np.full(300, 0.5)))
    np.testing.assert_allclose(fitted.utilities, 0, atol=1e-6)


def test_identical_embeddings_are_no_error() -> None:
    fitted = EmbeddingPosterior(np.ones((3, 4), dtype=np.float32))
    fitted.fit(Labels(np.array([0]), np.array([1]), np.array([1.0])))
    assert fitted.utilities.tolist() == [0, 0, 0]
