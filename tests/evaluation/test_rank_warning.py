"""The report's warning about how the learned reward ranks episodes."""

from __future__ import annotations

import dataclasses

import pytest

from laurel.evaluation.report import render
from report_page import Page


@pytest.mark.parametrize(
    ("tau", "ci95", "words"),
    [
        (-0.2, [-0.3, -0.1], "return less (Kendall's tau -0.20 [-0.30, -0.10])"),
        (-0.2, [-0.3, 0.1], "hardly return more"),
        (-0.2, None, "return less (Kendall's tau -0.20)"),
        (0.1, [0.0, 0.2], "hardly return more"),
        (None, None, "their ranks cannot be compared"),
        (0.8, [0.7, 0.9], ""),
    ],
)
def test_a_low_rank_agreement_is_a_warning(words_only, tau, ci95, words):
    rank = {"tau": tau, "ci95": ci95, "episodes": 10, "arms": {"preference": None}}
    html = render(dataclasses.replace(words_only, rank=rank))
    assert ('class="box warning"' in html) == bool(words)
    assert Page(html).text.count(words) >= (2 if words else 0)  # near the top and where it belongs
