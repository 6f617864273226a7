"""A share of right pairs with an interval that allows for texts in common."""

from __future__ import annotations

import numpy as np
import pytest

from laurel.feedback.rates import rate, rate_of_variance
from laurel.rewards.text_pairs import paired_rate


def test_pairs_that_are_all_right_are_no_more_cases_than_pairs_without_a_text_in_common() -> None:
    ones = np.ones(8)
    apart, star = np.arange(16).reshape(8, 2), np.column_stack([np.zeros(8, np.int64), np.arange(1, 9)])
    for pairs, cases in ((apart, 8), (star, 4)):
        found = paired_rate(ones, pairs[:, 0], pairs[:, 1])
        assert found is not None
        assert found["ci95"] == rate(cases, cases)["ci95"]  # type: ignore[index]


def test_an_interval_minds_that_pairs_share_texts() -> None:
    right = np.array([True, True, False, False] * 50)
    alone = np.arange(400).reshape(200, 2)
    shared = np.column_stack([np.where(right, 0, 1), np.arange(2, 202)])
    widths = []
    for pairs in (alone, shared):
        found = paired_rate(right, pairs[:, 0], pairs[:, 1])
        assert found is not None
        widths.append(found["ci95"][1] - found["ci95"][0])
    assert widths[1] > 2 * widths[0], "where a text decides, there are two cases and not two hundred"


def test_the_variance_is_that_of_all_rows_with_a_common_text_also_of_repeated_pairs() -> None:
    rng = np.random.default_rng(3)
    first = rng.integers(0, 12, 60)
    second = (first + rng.integers(1, 12, 60)) % 12
    first, second = (
        np.concatenate([first, second[:20]]),
        np.concatenate([second, first[:20]]),
    )  # asked the other way, too
    right = rng.random(80).round()
    errors = right - right.mean()
    common = [
        errors[i] * errors[j] for i in range(80) for j in range(80) if {first[i], second[i]} & {first[j], second[j]}
    ]
    variance = max(sum(common), float(np.square(errors).sum())) / 80**2
    found = paired_rate(right, first, second)
    expected = rate_of_variance(float(right.mean()), variance, 80, 6)
    assert found is not None
    assert found["ci95"] == pytest.approx(expected["ci95"])
