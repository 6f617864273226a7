"""Kappa: textbook figures, a slow obvious reference, planted agreement, and what is missing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laurel.feedback.agreement import Pattern, agreement, cohen, fleiss, table

# Fleiss (1971), Psychological Bulletin 76, table 1: 30 patients, 6 psychiatrists, 5 diagnoses; kappa = 0.430
FLEISS_1971 = """
0 0 0 6 0 / 0 3 0 0 3 / 0 1 4 0 1 / 0 0 0 0 6 / 0 3 0 3 0 / 2 0 4 0 0 / 0 0 4 0 2 / 2 0 3 1 0 / 2 0 0 4 0 / 0 0 0 0 6
1 0 0 5 0 / 1 1 0 4 0 / 0 3 3 0 0 / 1 0 0 5 0 / 0 2 0 3 1 / 0 0 5 0 1 / 3 0 0 1 2 / 5 1 0 0 0 / 0 2 0 4 0 / 1 0 2 0 3
0 0 0 0 6 / 0 1 0 5 0 / 0 2 0 1 3 / 2 0 0 4 0 / 1 0 0 4 1 / 0 5 0 1 0 / 4 0 0 0 2 / 0 2 0 4 0 / 1 0 5 0 0 / 0 0 0 0 6
"""
# Fleiss, Levin and Paik (2003), as quoted widely: 10 subjects, 14 raters, 5 categories; kappa = 0.210
FOURTEEN = """
0 0 0 0 14 / 0 2 6 4 2 / 0 0 3 5 6 / 0 3 9 2 0 / 2 2 8 1 1 / 7 7 0 0 0 / 3 2 6 3 0 / 2 5 3 2 2 / 6 5 2 1 0 / 0 2 2 3 7
"""
SIDES = st.sampled_from(["first", "second", "tie", None])


def counts(text: str) -> np.ndarray:
    rows = text.strip().replace("\n", "/").split("/")
    return np.array([[int(n) for n in row.split()] for row in rows], dtype=float)


@pytest.mark.parametrize(("text", "kappa"), [(FLEISS_1971, 0.430), (FOURTEEN, 0.210)])
def test_fleiss_of_the_textbooks(text: str, kappa: float) -> None:
    said = counts(text)
    assert float(fleiss(said, np.ones(len(said)))) == pytest.approx(kappa, abs=5e-4)


@pytest.mark.parametrize(
    ("rows", "kappa"),
    [
        ([[20, 5], [10, 15]], 0.4),
        ([[45, 15], [25, 15]], 0.1304),
        ([[25, 35], [5, 35]], 0.2593),
        ([[88, 14, 18], [10, 40, 10], [2, 6, 12]], 0.492),  # Cohen (1960), table 1, in 200ths: .44 .07 .09 / ...
    ],
)
def test_cohen_of_the_textbooks(rows: list[list[int]], kappa: float) -> None:
    assert float(cohen(np.array(rows, dtype=float))) == pytest.approx(kappa, abs=5e-4)


def expand(patterns: dict[Pattern, int]) -> list[Pattern]:
    return [row for row, times in patterns.items() for _ in range(times)]


def slow_cohen(first: Sequence[str | None], second: Sequence[str | None]) -> float:
    both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if not both:
        return math.nan
    same = sum(a == b for a, b in both) / len(both)
    left, right = Counter(a for a, _ in both), Counter(b for _, b in both)
    chance = sum(left[c] * right[c] for c in left) / len(both) ** 2
    return math.nan if chance == 1 else (same - chance) / (1 - chance)


def slow_fleiss(rows: Sequence[Pattern]) -> float:
    """The chance that two judges of a pair agree, over all pairs of judges, against that of two drawn anywhere."""
    shares, habits = [], Counter[str]()
    judged = 0
    for row in rows:
        said = [verdict for verdict in row if verdict is not None]
        if said:
            judged += 1
            for verdict in said:
                habits[verdict] += 1 / len(said)  # type: ignore[assignment]
        if len(said) >= 2:
            couples = list(combinations(said, 2))
            shares.append(sum(a == b for a, b in couples) / len(couples))
    if not shares:
        return math.nan
    chance = sum((n / judged) ** 2 for n in habits.values())
    return math.nan if chance > 1 - 1e-12 else (sum(shares) / len(shares) - chance) / (1 - chance)


@given(st.integers(2, 4).flatmap(lambda m: st.dictionaries(st.tuples(*[SIDES] * m), st.integers(1, 5), min_size=1)))
def test_it_is_the_slow_obvious_way(patterns: dict[Pattern, int]) -> None:
    found = agreement(patterns, 0, resamples=20)
    rows = expand(patterns)
    judges = len(rows[0])
    for pair in found["pairwise"]:
        i, j = pair["judges"]
        expected = slow_cohen([row[i] for row in rows], [row[j] for row in rows])
        assert (pair["value"] is None) == math.isnan(expected)
        if pair["value"] is not None:
            assert pair["value"] == pytest.approx(expected, abs=1e-9)
            assert -1 - 1e-9 <= pair["value"] <= 1 + 1e-9
    expected = found["pairwise"][0]["value"] if judges == 2 else slow_fleiss(rows)
    value = found["kappa"]["value"]
    if value is None:
        assert expected is None or math.isnan(expected)
    else:
        assert value == pytest.approx(expected, abs=1e-9)


def planted(kappa: float, judges: int, n: int, seed: int) -> dict[Pattern, int]:
    """Judges that are right with probability sqrt(kappa), else random: any two have agreement kappa."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n)
    said = [np.where(rng.random(n) < math.sqrt(kappa), truth, rng.integers(0, 2, n)) for _ in range(judges)]
    return dict(Counter(tuple(("second", "first")[v] for v in row) for row in np.array(said).T))


@pytest.mark.parametrize("judges", [2, 3, 5])
@pytest.mark.parametrize("kappa", [0.0, 0.3, 0.8])
def test_planted_agreement_is_found(kappa: float, judges: int) -> None:
    found = agreement(planted(kappa, judges, 20_000, 1), 0)
    assert found["kind"] == ("cohen" if judges == 2 else "fleiss")
    assert found["kappa"]["value"] == pytest.approx(kappa, abs=0.03)
    assert [pair["value"] for pair in found["pairwise"]] == pytest.approx([kappa] * len(found["pairwise"]), abs=0.03)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    covered = 0
    for seed in range(200):
        low, high = agreement(planted(0.5, 3, 300, seed), seed, resamples=300)["kappa"]["ci95"]
        covered += low <= 0.5 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_interval_is_as_wide_as_the_standard_error_says() -> None:
    """Cohen (1960), eq. 9; the counts of a textbook's table, 40 times."""
    said: dict[Pattern, int] = {("a", "a"): 800, ("a", "b"): 200, ("b", "a"): 400, ("b", "b"): 600}
    low, high = agreement(said, 0)["kappa"]["ci95"]
    error = math.sqrt(0.7 * 0.3 / (2000 * (1 - 0.5) ** 2))
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.05)


@pytest.mark.parametrize(("twos", "known"), [(1, False), (2, True)])
def test_there_is_an_interval_where_nearly_all_resamples_are_defined(twos: int, known: bool) -> None:
    """Those that drew only pairs of the first kind are not: 8% of resamples of five pairs, and 2% of those of six."""
    found = agreement({("a", "a"): 3, ("b", "b"): twos, ("a", "b"): 1}, 0)
    assert (found["kappa"]["ci95"] is not None) == known


def test_annotators_are_the_same_in_a_share_of_the_pairs_that_both_labelled() -> None:
    (pair,) = agreement({("a", "a"): 3, ("a", "b"): 1, ("a", None): 6}, 0)["pairwise"]
    assert (pair["same"], pair["of"]) == (0.75, 4)


def test_missing_answers_at_random_change_nothing_but_the_number() -> None:
    rng = np.random.default_rng(0)
    rows = expand(planted(0.6, 3, 20_000, 2))
    holes = Counter(tuple(None if rng.random() < 0.3 else verdict for verdict in row) for row in rows)
    whole, part = agreement(Counter(rows), 0)["kappa"], agreement(holes, 0)["kappa"]
    assert part["value"] == pytest.approx(whole["value"], abs=0.03)
    assert (
        part["of"]
        == sum(n for row, n in holes.items() if sum(verdict is not None for verdict in row) >= 2)
        < whole["of"]
    )


def test_kappa_of_opposite_and_of_equal_annotators() -> None:
    assert agreement({("first", "second"): 5, ("second", "first"): 5}, 0)["kappa"]["value"] == pytest.approx(-1)
    assert agreement({("first", "first"): 5, ("second", "second"): 5}, 0)["kappa"]["value"] == pytest.approx(1)


@pytest.mark.parametrize(
    "patterns",
    [
        {("first", "first"): 3, ("second", "second"): 2},
        {("first", "first"): 135, ("second", "second"): 1},
        {("first", "first"): 20, ("second", "second"): 20},
        {("first", "first", "first"): 2, ("second", "second", "second"): 1},
    ],
)
def test_judges_who_always_agree_have_no_interval_of_no_width(patterns: dict[Pattern, int]) -> None:
    found = agreement(patterns, 0)
    assert found["kappa"]["value"] == pytest.approx(1.0)
    assert found["kappa"]["ci95"] is None
    assert "1.00 (no interval: labels vary too little) on " in table("abc", found)


@pytest.mark.parametrize(
    "patterns", [{("first", "first"): 9}, {("first", None): 9}, {(None, None): 2}, {(None, None, None): 2}]
)
def test_where_kappa_is_undefined(patterns: dict[Pattern, int]) -> None:
    found = agreement(patterns, 0)
    assert found["kappa"]["value"] is found["kappa"]["ci95"] is None
    assert "undefined" in table("abc", found)


def test_the_same_seed_gives_the_same() -> None:
    patterns = planted(0.4, 3, 200, 0)
    assert agreement(patterns, 7) == agreement(dict(reversed(patterns.items())), 7)
    assert agreement(patterns, 7) != agreement(patterns, 8)


def test_the_table_names_who_agrees_with_whom() -> None:
    told = table(["a", "b", "c"], agreement(planted(0.8, 3, 500, 0), 0))
    assert told.startswith("Fleiss' kappa: 0.")
    assert "\n  a and c: kappa 0." in told


def test_a_pair_that_no_judge_labelled_changes_nothing() -> None:
    said = counts(FLEISS_1971)
    more, weights = np.vstack([said, np.zeros((1, 5))]), np.ones(len(said) + 1)
    assert float(fleiss(more, weights)) == pytest.approx(float(fleiss(said, weights[1:])))
