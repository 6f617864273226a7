"""Samplers by their properties, against a planted teacher, and against uniform."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations, pairwise
from statistics import median, pstdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from laurel.feedback.acquisition import Disagreement, Information, Nearby, Ranking, Strategy
from laurel.feedback.pairs import UnaskedPairs, sample_pairs
from laurel.feedback.posterior import CaptionPosterior, EmbeddingPosterior, Labels
from laurel.feedback.samplers import AdaptiveSampler, DrawnSampler, Sampler

ADAPTIVE = ("information", "disagreement", "ranking", "nearby")
ALL = ("uniform", "frequency", *ADAPTIVE)
Round = tuple[np.ndarray, np.ndarray]


def embeddings_of(size: int, width: int = 8) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(size, width)).astype(np.float32)


def make(name: str, size: int, n_pairs: int = 400, seed: int = 0, width: int = 8) -> Sampler:
    unasked, rng = UnaskedPairs(size), np.random.default_rng(seed)
    if name in ("uniform", "frequency"):
        return DrawnSampler(np.arange(size, dtype=np.int64), n_pairs, name, unasked, rng)
    strategy: Strategy
    match name:
        case "information":
            strategy = Information(embeddings_of(size, width))
        case "disagreement":
            strategy = Disagreement(embeddings_of(size, width))
        case "nearby":
            strategy = Nearby(embeddings_of(size, width))
        case _:
            strategy = Ranking(size)
    return AdaptiveSampler(strategy, unasked, rng)


def rounds(sampler: Sampler, utilities: np.ndarray, n: int, number: int, missing: int = 0) -> Iterator[Round]:
    """Yield rounds that a teacher judges; every `missing`-th answer is none, every tenth a tie."""
    for _ in range(number):
        first, second = sampler.propose(n)
        p: list[float | None] = [float(utilities[a] > utilities[b]) for a, b in zip(first, second, strict=True)]
        p[::10] = [0.5] * len(p[::10])
        if missing:
            p[::missing] = [None] * len(p[::missing])
        yield first, second
        sampler.observe(first, second, p)


def joined(parts: Iterator[Round]) -> Round:
    firsts, seconds = zip(*parts, strict=True)
    return np.concatenate(firsts), np.concatenate(seconds)


def check(first: np.ndarray, second: np.ndarray, size: int) -> None:
    assert first.dtype == second.dtype == np.int64
    found = [frozenset(pair) for pair in zip(first.tolist(), second.tolist(), strict=True)]
    assert all(len(pair) == 2 and pair <= set(range(size)) for pair in found)
    assert len(set(found)) == len(found), "no pair twice, in either order"


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(ALL), st.integers(0, 12), st.integers(1, 30), st.integers(0, 9), st.sampled_from([0, 1, 3]))
def test_every_pair_once_until_none_is_left(name: str, size: int, n: int, seed: int, missing: int) -> None:
    if size < 2 and name in ADAPTIVE:
        size = 2
    total = size * (size - 1) // 2
    utilities = np.random.default_rng(seed).normal(size=size)
    parts = list(rounds(make(name, size, seed=seed), utilities, n, total // n + 2, missing))
    check(*joined(iter(parts)), size)
    assert [len(first) for first, _ in parts] == [n] * (total // n) + [total % n] + [0] * (len(parts) - total // n - 1)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("size", [20, 200, 2000])
def test_same_seed_same_pairs_in_any_vocabulary(name: str, size: int) -> None:
    utilities = embeddings_of(size) @ np.arange(8.0)
    first_draw, same, other = (
        np.stack(joined(rounds(make(name, size, seed=seed), utilities, 40, 3, missing=7))) for seed in (3, 3, 4)
    )
    assert first_draw.shape == (2, 120)
    check(*first_draw, size)
    assert first_draw.tobytes() == same.tobytes()
    assert not np.array_equal(first_draw, other)
    assert 0.25 < (first_draw[0] < first_draw[1]).mean() < 0.75, "turned by chance"


@pytest.mark.parametrize("name", ALL)
def test_a_hundred_thousand_captions(name: str) -> None:
    size = 100_000
    utilities = embeddings_of(size, 4) @ np.arange(4.0)
    first, second = joined(rounds(make(name, size, seed=2, width=4), utilities, 100, 2))
    assert len(first) == 200
    check(first, second, size)


@pytest.mark.parametrize("name", ["uniform", "frequency"])
def test_drawn_in_slices_is_drawn_at_once(name: str) -> None:
    sampler = make(name, 50, n_pairs=300, seed=9)
    slices = np.stack(joined(rounds(sampler, np.zeros(50), 70, 6)))
    whole = sample_pairs(np.arange(50, dtype=np.int64), 300, name, np.random.default_rng(9))
    assert np.array_equal(slices, np.stack(whole))


def test_pairs_that_another_sampler_proposed_are_passed_over_and_no_others() -> None:
    unasked = UnaskedPairs(6)
    unasked.ask(np.arange(5), np.full(5, 5))
    sampler = DrawnSampler(np.ones(6, dtype=np.int64), 15, "uniform", unasked, np.random.default_rng(0))
    parts = [sampler.propose(4) for _ in range(4)]
    assert [len(first) for first, _ in parts] == [4, 4, 2, 0]
    check(*joined(iter(parts)), 5)
    assert len(unasked) == 0, "another one will pass over them, too"


class Undecided:
    """A strategy that chooses nothing, and notes how many labels it is shown."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def choose(self, n: int, labels: Labels, unasked: UnaskedPairs, rng: np.random.Generator) -> Round:
        self.seen.append(len(labels))
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing


def test_what_a_strategy_does_not_choose_is_drawn_once_and_it_sees_all_labels() -> None:
    strategy, unasked = Undecided(), UnaskedPairs(5)
    sampler = AdaptiveSampler(strategy, unasked, np.random.default_rng(0))
    parts = list(rounds(sampler, np.arange(5.0), 4, 3))
    assert [len(first) for first, _ in parts] == [4, 4, 2]
    check(*joined(iter(parts)), 5)
    assert strategy.seen == [0, 4, 8]


def test_another_process_proposes_the_same() -> None:
    code = (
        "import sys; sys.path[:0] = ['tests/feedback']\n"
        "from test_samplers import digest\n"
        "print(digest('information'), digest('disagreement'), digest('ranking'), digest('nearby'))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said == [digest(name) for name in ADAPTIVE]


def digest(name: str) -> str:
    """Return a digest of what a sampler proposes in three rounds."""
    utilities = embeddings_of(150) @ np.arange(8.0)
    return hashlib.sha256(np.stack(joined(rounds(make(name, 150), utilities, 50, 3))).tobytes()).hexdigest()


def labels_needed(name: str, seed: int, noise: float, size: int = 120, n: int = 10, limit: int = 900) -> int:
    """Return after how many labels the order of a planted linear utility is found: Kendall's tau of 0.9."""
    embeddings = embeddings_of(size, width=16)
    rng = np.random.default_rng(seed)
    utilities = embeddings @ rng.normal(size=16)
    sampler, estimator, labels = make(name, size, limit, seed, 16), EmbeddingPosterior(embeddings), Labels.empty()
    while len(labels) < limit:
        first, second = sampler.propose(n)
        p = ((utilities[first] > utilities[second]) != (rng.random(len(first)) < noise)).astype(np.float64)
        sampler.observe(first, second, p)
        labels = labels.with_more(first, second, p)
        estimator.fit(labels)
        if kendalltau(estimator.utilities, utilities).statistic >= 0.9:
            break
    return len(labels)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_adaptive_samplers_need_fewer_labels_than_uniform(noise: float) -> None:
    needed = {
        name: median(labels_needed(name, seed, noise) for seed in range(7))
        for name in ("uniform", "information", "disagreement", "nearby")
    }
    assert needed["information"] <= 0.6 * needed["uniform"], needed
    assert needed["disagreement"] <= 0.8 * needed["uniform"], needed
    assert needed["nearby"] <= 0.8 * needed["uniform"], needed


@pytest.mark.parametrize("name", ALL)
def test_every_sampler_finds_a_planted_order(name: str) -> None:
    assert labels_needed(name, seed=0, noise=0.0) < 900


def test_ranking_sorts_captions_without_other_information() -> None:
    size, reached = 100, {}
    for name in ("uniform", "ranking"):
        utilities = np.random.default_rng(4).permutation(size).astype(np.float64)
        sampler, estimator, labels = make(name, size, 2000, seed=4), CaptionPosterior(size), Labels.empty()
        for _ in range(12):
            first, second = sampler.propose(40)
            p = (utilities[first] > utilities[second]).astype(np.float64)
            sampler.observe(first, second, p)
            labels = labels.with_more(first, second, p)
        estimator.fit(labels)
        reached[name] = kendalltau(estimator.utilities, utilities).statistic
    assert reached["ranking"] > 0.9 > reached["uniform"], "480 labels; a full sort takes 525 comparisons"


def test_nearby_asks_about_neighbours() -> None:
    size = 300
    utilities = embeddings_of(size) @ np.arange(8.0)
    place = np.empty(size)
    place[np.argsort(utilities)] = np.arange(size)
    for name, nearer in (("nearby", True), ("uniform", False)):
        *_, (first, second) = rounds(make(name, size), utilities, 60, 5)
        assert bool(np.median(np.abs(place[first] - place[second])) < size / 20) is nearer


def test_every_caption_is_compared_once_before_any_twice() -> None:
    """The first round of a sort: all are equally uncertain, and one comparison makes two of them less so."""
    first, second = make("ranking", 40).propose(20)
    assert len({*first.tolist(), *second.tolist()}) > 32


def test_a_round_of_information_does_not_ask_the_same_twice() -> None:
    """Without look-ahead, all copies of the most informative pair would be asked about."""
    kinds = np.random.default_rng(2).normal(size=(6, 6))
    sampler = AdaptiveSampler(Information(np.repeat(kinds, 3, axis=0)), UnaskedPairs(18), np.random.default_rng(0))
    first, second = sampler.propose(15)
    asked = {frozenset((a // 3, b // 3)) for a, b in zip(first.tolist(), second.tolist(), strict=True)}
    assert len(asked) >= 8, "of 15 pairs of kinds"


def labels_of(size: int, n: int = 30) -> Labels:
    """Labels of a planted linear utility, with ties."""
    utilities = embeddings_of(size, 4) @ np.arange(4.0)
    first, second = UnaskedPairs(size).draw(n, np.random.default_rng(3))
    p = (utilities[first] > utilities[second]).astype(np.float64)
    p[::10] = 0.5
    return Labels(first, second, p)


@pytest.mark.parametrize("n", [2, 20])
def test_a_round_of_information_is_chosen_as_if_each_pair_were_answered_at_once(n: int) -> None:
    """The slow obvious way: a belief about weights, conditioned on the answers one by one."""
    embeddings, labels = embeddings_of(12, 4), labels_of(12)
    found = Information(embeddings).choose(n, labels, UnaskedPairs(12), np.random.default_rng(5))
    rng, posterior = np.random.default_rng(5), EmbeddingPosterior(embeddings)
    first, second = UnaskedPairs(12).draw(66, rng)
    posterior.fit(labels)
    between = posterior.features[first] - posterior.features[second]
    weights, covariance = np.linalg.lstsq(posterior.features, posterior.utilities, rcond=None)[0], posterior.covariance
    chosen: list[int] = []
    for _ in range(n):
        mean, variance = between @ weights, np.einsum("pf,fg,pg->p", between, covariance, between)
        score = posterior.likelihood.information(mean, variance)
        best = max(set(range(66)) - set(chosen), key=lambda row: score[row])
        chosen.append(best)
        chance, up, down = (values[best] for values in posterior.likelihood.expected_shift(mean, variance))
        along = covariance @ between[best] / variance[best]  # of the weights' change, per change of the difference
        weights = weights + along * (up if rng.random() < chance else -down)
        covariance = covariance - np.outer(along, along) * (chance * up**2 + (1 - chance) * down**2)
    assert [indices.tolist() for indices in found] == [first[chosen].tolist(), second[chosen].tolist()]


def test_a_large_round_of_information_does_not_begin_with_the_same_pairs_in_succession() -> None:
    """Where scores are only computed for every third pair, those in between are scaled down."""
    embeddings = np.repeat(np.random.default_rng(2).normal(size=(6, 6)), 12, axis=0)
    first, second = Information(embeddings).choose(150, Labels.empty(), UnaskedPairs(72), np.random.default_rng(0))
    kinds = np.sort(np.stack([first // 12, second // 12]), axis=0)
    assert (kinds[:, 1:30] == kinds[:, :29]).all(axis=0).sum() < 5, "of the first thirty pairs"


def test_a_large_round_of_information_asks_every_pair_once_and_leaves_the_belief_as_it_was() -> None:
    strategy = Information(embeddings_of(16, 4))
    rounds_of = [strategy.choose(120, Labels.empty(), UnaskedPairs(16), np.random.default_rng(0)) for _ in range(2)]
    check(*rounds_of[0], 16)
    assert np.array_equal(*rounds_of)


def test_disagreement_asks_where_members_differ_most() -> None:
    embeddings, labels = embeddings_of(12, 4), labels_of(12)
    first, second = Disagreement(embeddings).choose(5, labels, UnaskedPairs(12), np.random.default_rng(5))
    rng, posterior = np.random.default_rng(5), EmbeddingPosterior(embeddings)
    every = UnaskedPairs(12).draw(66, rng)
    posterior.fit(labels)
    members = posterior.members(labels, 5, rng)
    spread = {
        (a, b): pstdev(posterior.likelihood.p_first(members[:, a] - members[:, b]).tolist())
        for a, b in np.stack(every).T.tolist()
    }
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == sorted(spread, key=lambda pair: -spread[pair])[:5]


def test_nearby_asks_about_similar_captions_at_first_and_then_about_neighbours_in_rank() -> None:
    embeddings, labels = embeddings_of(12, 4), labels_of(12)
    apart = {
        pair: float(np.linalg.norm(embeddings[pair[0]] - embeddings[pair[1]])) for pair in combinations(range(12), 2)
    }
    first, second = Nearby(embeddings).choose(5, Labels.empty(), UnaskedPairs(12), np.random.default_rng(0))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == sorted(apart, key=lambda pair: apart[pair])[:5]
    posterior = EmbeddingPosterior(embeddings)
    posterior.fit(labels)
    order = np.argsort(posterior.utilities).tolist()
    first, second = Nearby(embeddings).choose(21, labels, UnaskedPairs(12), np.random.default_rng(0))
    found = list(zip(first.tolist(), second.tolist(), strict=True))
    assert set(found[:11]) == set(pairwise(order))
    assert set(found[11:]) == set(zip(order, order[2:], strict=False))


def test_ranking_reckons_with_the_expected_answers_of_its_round() -> None:
    """Pairs of a round share captions only once all are paired; each makes its captions' variances smaller."""
    strategy = Ranking(8)
    prior = CaptionPosterior(8)
    first, second = strategy.choose(4, Labels.empty(), UnaskedPairs(8), np.random.default_rng(0))
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(8))
    mean, variance = prior.differences(first, second)
    chance, up, down = prior.likelihood.expected_shift(mean, variance)
    told = chance * up**2 + (1 - chance) * down**2  # of the difference's variance
    np.testing.assert_allclose(
        strategy._posterior.variance[first], prior.variance[first] - told * (prior.variance[first] / variance) ** 2
    )
