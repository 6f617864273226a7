from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laurel.feedback import triads
from laurel.feedback.rates import Rate, rate_of_variance
from laurel.feedback.triads import intransitivity


def counted(sides: dict[tuple[int, int], float]) -> tuple[int, int]:
    """Count circles and triads one by one."""
    better = {(a, b) if p > 0.5 else (b, a) for (a, b), p in sides.items() if p != 0.5}
    nodes = sorted({node for pair in better for node in pair})
    circles = found = 0
    for triple in combinations(nodes, 3):
        found += all((a, b) in better or (b, a) in better for a, b in combinations(triple, 2))
        circles += any({(a, b), (b, c), (c, a)} <= better for a, b, c in permutations(triple))
    return circles, found


@settings(max_examples=150, deadline=None)
@given(
    sides=st.dictionaries(
        st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda pair: pair[0] < pair[1]),
        st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]),
        max_size=45,
    ),
    turned=st.booleans(),
    block=st.sampled_from([3, 50, 10**6]),
)
def test_every_triad_is_counted(sides: dict[tuple[int, int], float], turned: bool, block: int) -> None:
    circles, found = counted(sides)
    first = np.array([pair[turned] for pair in sides], dtype=np.int64)
    second = np.array([pair[not turned] for pair in sides], dtype=np.int64)
    p = np.array([1 - p if turned else p for p in sides.values()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triads, "BLOCK", block)
        given = intransitivity(first, second, p, seed=0)
    if not found:
        assert given is None
        return
    assert given is not None
    assert given["of"] == found
    assert given["value"] == pytest.approx(circles / found)
    assert given["ci95"][0] <= given["value"] <= given["ci95"][1]
    assert not given["sampled"]


def tournament(n: int, seed: int = 0, p_random: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs of n segments; some are judged at random and the rest by order."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(n, 1)
    p = np.where(rng.random(len(first)) < p_random, rng.random(len(first)) < 0.5, 1.0)
    return first, second, p.astype(float)


def test_a_quarter_of_random_triads_is_intransitive() -> None:
    given = intransitivity(*tournament(60), seed=0)
    assert given is not None
    assert given["ci95"][0] <= 0.25 <= given["ci95"][1]
    assert given["ci95"][1] - given["ci95"][0] < 0.05


def test_the_interval_covers_what_other_segments_would_give() -> None:
    """Some segments confuse the annotator: a handful of them more or less changes the share a lot."""
    rng, found = np.random.default_rng(0), []
    first, second = np.triu_indices(24, 1)
    for _ in range(300):
        confusing = rng.random(24) < 0.6
        both = confusing[first] & confusing[second]
        given = intransitivity(first, second, np.where(both, rng.random(len(first)) < 0.5, 1.0), seed=0)
        assert given is not None
        found.append((given["value"], *given["ci95"]))
    values, low, high = np.array(found).T
    truth = 0.6**3 / 4 + 0.6**2 * 0.4 / 2  # all three confuse, or the outer two of the order
    assert values.mean() == pytest.approx(truth, abs=0.007)
    assert 0.9 <= ((low <= truth) & (truth <= high)).mean() <= 0.99


def test_triads_that_share_pairs_count_as_those_that_do_not() -> None:
    given = intransitivity(*tournament(12, p_random=0.0), seed=0)
    assert given is not None
    assert (given["value"], given["of"]) == (0.0, 220)
    assert given["ci95"] == pytest.approx(rate_of_variance(0.0, 0.0, 220, 66 // 3)["ci95"]), "of 66 pairs, three each"


@pytest.mark.parametrize("in_all", [False, True])
def test_the_variance_is_that_of_leaving_out_one_segment_after_the_other(in_all: bool) -> None:
    if in_all:  # segment 0 is part of both triads, so that none is left without it
        first, second, p = np.array([0, 1, 0, 0, 3, 4]), np.array([1, 2, 2, 3, 4, 0]), np.ones(6)
    else:  # segment 9 is part of none
        first, second, p = (array[5:] for array in tournament(9, seed=1, p_random=0.7))
        first, second, p = np.append(first, 9), np.append(second, 3), np.append(p, 1.0)
    sides = dict(zip(zip(first.tolist(), second.tolist(), strict=True), p.tolist(), strict=True))
    circles, found = counted(sides)
    shares = []
    for left_out in range(10):
        rest = counted({pair: side for pair, side in sides.items() if left_out not in pair})
        if rest[1] < found:
            shares.append(rest[0] / rest[1] if rest[1] else circles / found)
    variance = (len(shares) - 1) * float(np.var(shares))
    assert 0 < circles < found
    given = intransitivity(first, second, p, seed=0)
    assert given is not None
    of = min(found, len(sides) // 3)
    assert given["ci95"] == pytest.approx(rate_of_variance(circles / found, variance, found, of)["ci95"])


def test_a_transitive_order_has_no_intransitive_triads() -> None:
    given = intransitivity(*tournament(30, p_random=0), seed=0)
    assert given is not None
    assert given["value"] == 0
    assert 0 < given["ci95"][1] < 0.35


def test_large_graphs_are_sampled_reproducibly() -> None:
    graph = tournament(150, p_random=0.5)
    whole, some = (intransitivity(*graph, seed=3, max_paths=limit) for limit in (10**9, 10))
    assert whole is not None
    assert some is not None
    assert (whole["sampled"], some["sampled"]) == (False, True)
    assert some["of"] < whole["of"]
    assert some["value"] == pytest.approx(whole["value"], abs=0.01)
    assert some == intransitivity(*graph, seed=3, max_paths=10)


def test_triads_are_drawn_alike_however_many_pairs_their_segments_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(ordered: int, circles: int, paths: int, max_paths: int = 1) -> Rate:
        """Draw from an order of all its segments and separate circles, whose segments have two pairs each."""
        above, below = np.triu_indices(ordered, 1)
        around = ordered + np.arange(3 * circles).reshape(-1, 3)
        first, second = np.append(above, around), np.append(below, np.roll(around, -1, axis=1))
        monkeypatch.setattr(triads, "DRAWN", paths)
        given = intransitivity(first, second, np.ones(len(first)), seed=0, max_paths=max_paths)
        assert given is not None
        return given

    assert drawn(10, 30, 10_000) == {**drawn(10, 30, 0, 10**9), "sampled": True}, "all are drawn, and count once"
    some = drawn(40, 1000, 3000)
    assert some["value"] == pytest.approx(1000 / (1000 + 9880), abs=0.02)


def test_triads_with_missing_labels_or_ties_are_not_counted() -> None:
    first, second = np.array([0, 1, 2]), np.array([1, 2, 0])
    circle = intransitivity(first, second, np.ones(3), seed=0)
    assert circle is not None
    assert (circle["value"], circle["of"]) == (1.0, 1)
    for p in (np.nan, 0.5):
        assert intransitivity(first, second, np.array([1.0, 1.0, p]), seed=0) is None
    assert intransitivity(first[:0], second[:0], np.zeros(0), seed=0) is None
    itself = intransitivity(np.append(first, 1), np.append(second, 1), np.ones(4), seed=0)
    assert itself == circle, "a segment is not better than itself"


def test_a_pair_judged_twice_counts_with_its_mean() -> None:
    first, second = np.array([0, 1, 2, 0]), np.array([1, 2, 0, 2])
    assert intransitivity(first, second, np.array([1.0, 1.0, 1.0, 1.0]), seed=0) is None, "2 and 0 are even"
    given = intransitivity(first, second, np.array([1.0, 1.0, 0.9, 1.0]), seed=0)
    assert given is not None
    assert given["value"] == 0.0
