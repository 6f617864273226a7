"""Judges side by side: planted accuracies and faults are found again, by a slow obvious way too."""

from __future__ import annotations

import numpy as np
import pytest

from laurel.feedback.annotator import Answer, Judgement
from laurel.feedback.leaderboard import Entry, leaderboard, markdown

BETTER = [bool(i % 2) for i in range(400)]


def answering(rights: list[bool], name: str = "m", **more: object) -> Entry:
    judged = [Judgement("ok", float(better == right)) for better, right in zip(BETTER, rights, strict=False)]
    return Entry(name, None, None, judgements=judged, **more)  # type: ignore[arg-type]


def drawn(rate: float, seed: int, n: int = len(BETTER)) -> list[bool]:
    return (np.random.default_rng(seed).random(n) < rate).tolist()


def test_the_best_is_first_and_ties_are_marked() -> None:
    best = drawn(0.9, 0)
    near = [not r if i < 4 else r for i, r in enumerate(best)]  # differs in four pairs, so that it may be either
    rows = leaderboard([answering(drawn(0.6, 1), "far"), answering(best, "best"), answering(near, "near")], BETTER)
    assert [row["model"] for row in rows] == ["best", "near", "far"]
    assert [row["as_good_as_best"] for row in rows] == [True, True, False]
    for row, rights in zip(rows, (best, near, drawn(0.6, 1)), strict=True):
        assert row["accuracy"] == pytest.approx(np.mean(rights))
        assert row["difference"] == pytest.approx(np.mean(best) - np.mean(rights))
        low, high = row["difference_ci95"]
        assert low <= row["difference"] <= high


def test_pairs_are_compared_and_not_means() -> None:
    """Two judges that err on the same pairs, one on a few more, are distinguished; two with independent errors are
    not."""
    best = [i % 10 != 0 for i in range(len(BETTER))]
    same = [right and i % 50 != 1 for i, right in enumerate(best)]
    apart = [i % 10 != 5 and i % 50 != 1 for i in range(len(BETTER))]
    rows = {row["model"]: row for row in leaderboard(
        [answering(best, "best"), answering(same, "same"), answering(apart, "apart")], BETTER)}  # fmt: skip
    assert rows["same"]["accuracy"] == rows["apart"]["accuracy"]
    assert not rows["same"]["as_good_as_best"]
    assert rows["apart"]["as_good_as_best"]


@pytest.mark.parametrize("n", [10, 20, 50, 400])
def test_intervals_of_differences_cover_as_often_as_they_say(n: int) -> None:
    """Also where no pair tells two good judges apart, as is common with few pairs."""
    covered = 0
    for seed in range(200):
        better, worse = drawn(0.95, 2 * seed, n), drawn(0.9, 2 * seed + 1, n)
        rows = leaderboard([answering(better, "a"), answering(worse, "b")], BETTER[:n])
        sign = 1 if rows[0]["model"] == "a" else -1
        low, high = rows[1]["difference_ci95"]
        covered += low <= 0.05 * sign <= high
    assert covered / 200 >= 0.92


def test_few_pairs_do_not_make_one_judge_better() -> None:
    equal, behind = leaderboard([answering([True] * 5, name) for name in "ab"], BETTER[:5])
    assert equal["model"] == "a", "the order of the entries"
    low, high = behind["difference_ci95"]
    assert (equal["difference_ci95"], behind["difference"]) == ([0.0, 0.0], 0.0)
    assert low < -0.3
    assert high > 0.3
    three_of_ten = [answering([True] * 10, "best"), answering([False] * 3 + [True] * 7, "other")]
    other = leaderboard(three_of_ten, BETTER[:10])[1]
    assert other["as_good_as_best"], "McNemar's exact test: p = 0.25"
    assert other["difference_ci95"] == pytest.approx([-0.0867, 0.5867], abs=1e-4), "3 + 1 and 0 + 1 of 10 + 2"


@pytest.mark.parametrize("n", [1, 2, 4])
def test_intervals_of_differences_stay_within_their_range(n: int) -> None:
    halves = [answering([i % 2 == wrong for i in range(n)], str(wrong)) for wrong in (0, 1)]
    for entries in (halves, [answering([True] * n, "right"), answering([False] * n, "wrong")]):
        low, high = leaderboard(entries, BETTER[:n])[1]["difference_ci95"]
        assert -1 <= low < high <= 1


@pytest.mark.parametrize("first_is_better", [True, False])
def test_ties_and_missing_answers_are_not_right(first_is_better: bool) -> None:
    right = Judgement("ok", 0.6 if first_is_better else 0.4)
    judged = [Judgement("tie", 0.5), Judgement("abstain", None), Judgement("api_failed", None), right]
    (row,) = leaderboard([Entry("m", None, None, judgements=judged)], [first_is_better] * 4)
    assert (row["accuracy"], row["ties"], row["unlabelled"]) == (0.25, 0.25, 0.5)


def said(*verdicts: str) -> Judgement:
    """Answers in turn as shown first and second."""
    answers = tuple(Answer(i % 2, 0, verdict, None, "") for i, verdict in enumerate(verdicts))
    return Judgement("ok", 1.0, 1, len(set(verdicts)) == 1, answers)


def test_planted_rates_of_single_answers_are_recovered() -> None:
    judged = [said("first", "second")] * 3 + [said("first", "first"), said("unread", "first"), said("failed", "tie")]
    (row,) = leaderboard([Entry("m", "p", 0.5, judgements=judged, usage={"calls": 12, "cost_usd": 0.25})], [True] * 6)
    assert row["parse_rate"] == 10 / 11, "an answer that never came is no answer that could not be read"
    # shown first: 3 * (yes, yes), (yes, no), (no) of those with a side
    assert row["first_named"] == 7 / 9
    assert row["swap_consistency"] == 1 / 6
    assert (row["calls"], row["cost_usd"]) == (12, 0.25)


def test_tokens_and_cost_without_some_answers_are_lower_bounds() -> None:
    used = {"calls": 2, "input_tokens": 1000, "output_tokens": 0, "cost_usd": 0.25, "uncounted": 1, "unpriced": 1}
    rows = leaderboard([Entry("m", "p", 0.5, judgements=[said("first", "second")], usage=used)], [True])
    assert "| at least 1,000 / unknown | at least 0.25 |" in markdown(rows)


def test_one_order_gives_no_position_bias() -> None:
    once = Judgement("ok", 1.0, 1, None, (Answer(0, 0, "first", 1.0, ""),))
    (row,) = leaderboard([Entry("m", None, None, judgements=[once])], [True])
    assert row["first_named"] is row["swap_consistency"] is None


def test_failures_come_last_with_their_reason() -> None:
    rows = leaderboard([Entry("gone", "p", 0.0, failure="no such model"), answering(drawn(0.1, 0))], BETTER)
    assert [row["model"] for row in rows] == ["m", "gone"]
    assert rows[1]["failure"] == "no such model"
    assert "accuracy" not in rows[1]
    assert leaderboard([Entry("gone", None, None, failure="x")], BETTER)[0]["failure"] == "x"


def test_the_table_keeps_texts_in_their_cells() -> None:
    rows = leaderboard([answering(drawn(0.5, 0), "a|b\n<script>", simulated=True)], BETTER)
    lines = markdown([*rows, *leaderboard([Entry("c", "p", 0.7, failure="x")], BETTER)]).splitlines()
    assert len(lines) == 4
    assert "a\\|b &lt;script> (simulated)" in lines[2]
    assert "failed" in lines[3]
    assert " cost " not in lines[0], "columns that say nothing are left out"
    assert len({len(line) for line in lines}) == 1
