import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.feedback.rates import grouped_rate, rate, rate_of_variance


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (90, 100, 0.8256, 0.9448)],
)
def test_wilsons_interval(hits: int, of: int, low: float, high: float) -> None:
    found = rate(hits, of)
    assert found is not None
    assert (found["value"], found["of"]) == (hits / of, of)
    assert found["ci95"] == pytest.approx([low, high], abs=5e-5)


def test_no_answers_give_no_rate() -> None:
    assert rate(0, 0) is None
    assert grouped_rate(np.zeros(0, bool), np.zeros(0, int)) is None


@given(hits=st.lists(st.booleans(), min_size=2, max_size=200))
def test_groups_of_one_are_independent_cases(hits: list[bool]) -> None:
    n, p = len(hits), sum(hits) / len(hits)
    grouped = grouped_rate(np.array(hits), np.arange(n))
    assert grouped is not None
    assert grouped["value"] == pytest.approx(p)
    assert grouped["ci95"] == pytest.approx(rate_of_variance(p, p * (1 - p) / (n - 1), n, n)["ci95"])


def test_repeated_cases_count_once() -> None:
    rng = np.random.default_rng(0)
    hits = rng.random(500) < 0.3
    twice = grouped_rate(np.repeat(hits, 2), np.repeat(np.arange(500), 2))
    once = rate(int(hits.sum()), 500)
    assert twice is not None
    assert once is not None
    assert twice["of"] == 1000
    assert twice["ci95"] == pytest.approx(once["ci95"], abs=1e-3)
    same = grouped_rate(np.ones(20, bool), np.repeat(np.arange(10), 2))
    assert same is not None
    assert same["ci95"][0] == pytest.approx(0.7225, abs=1e-4), "all alike: as many as there are groups"


def test_the_interval_covers_in_95_of_100_samples() -> None:
    rng = np.random.default_rng(1)
    groups, truth, covered = np.repeat(np.arange(80), 2), 0.65, 0
    for _ in range(600):
        copied = np.repeat(rng.random(80) < 0.5, 2)  # half of the groups say the same twice
        drawn = rng.random(160) < truth
        hits = np.where(copied, np.repeat(drawn[::2], 2), drawn)
        found = grouped_rate(hits, groups)
        assert found is not None
        covered += found["ci95"][0] <= truth <= found["ci95"][1]
    assert 0.92 <= covered / 600 <= 0.98


def test_intervals_of_grouped_rates_count_groups_not_cases() -> None:
    found = grouped_rate(np.tile([True, False], 10), np.repeat(np.arange(10), 2))
    assert found is not None
    assert found["value"] == 0.5
    once = rate(5, 10)
    assert once is not None
    assert found["ci95"] == once["ci95"], "ten groups, not twenty cases"
    assert found["ci95"][1] - found["ci95"][0] > 0.3


def test_groups_that_are_nearly_alike_are_no_more_than_their_cases() -> None:
    hits = np.array([*[1, 0] * 10, 1, 1], dtype=np.bool_)
    grouped, single = grouped_rate(hits, np.arange(11).repeat(2)), rate(12, 22)
    assert grouped is not None
    assert single is not None
    assert grouped["ci95"] == pytest.approx(single["ci95"])
