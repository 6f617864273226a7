import dataclasses

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from laurel.evaluation.label_report import calibrations, examples, kappa, usage_by_annotator
from laurel.evaluation.plots import calibration_curve, svg
from laurel.evaluation.report import render
from report_page import Page

BINS = [
    {"p": 0.6, "observed": 0.5, "ci95": [0.2, 0.8], "pairs": 4},
    {"p": 0.95, "observed": 0.9, "ci95": [0.8, 0.96], "pairs": 40},
]


def test_calibration_is_drawn_for_each_reference_that_has_it() -> None:
    in_doubt = {"gold_uncertain": {"calibration": BINS}}
    bins = calibrations({"oracle": {"calibration": BINS}, "gold": {"pairs": 3}, "pairs": 3, **in_doubt})
    assert bins == {"oracle": BINS}
    both = {"gold": BINS, **bins}
    words = {"low": 0.5, "title": "", "xlabel": "", "ylabel": ""}
    figure = calibration_curve(both, **words)
    (axes,) = figure.axes
    dots = [collection for collection in axes.collections if isinstance(collection, PathCollection)]
    for dot, aside in zip(dots, (-0.0035, 0.0035), strict=True):
        np.testing.assert_allclose(np.asarray(dot.get_offsets()), [[0.6 + aside, 0.5], [0.95 + aside, 0.9]])
    assert svg(calibration_curve(both, **words)) == svg(figure)


def test_the_cost_of_asking_is_reported_in_total_and_per_judge() -> None:
    took = {"calls": 1200, "cached": 3, "output_tokens": 70, "cost_usd": None, "seconds": 2.25}
    found = usage_by_annotator({**took, "members.1.calls": 1200, "members.1.cost_usd": 0.25}, ["a", "b"])
    assert found[0] == (
        "",
        [
            ("calls", "1,200"),
            ("answers from the store", "3"),
            ("tokens of answers", "70"),
            ("cost", "unknown"),
            ("seconds of latency, summed over answers", "2.2"),
        ],
    )
    assert found[1:] == [("b", [("calls", "1,200"), ("cost", "$0.25")])]


def test_amounts_without_some_answers_are_lower_bounds() -> None:
    took = {"calls": 208, "input_tokens": 1940, "output_tokens": 0, "cost_usd": 0.5, "uncounted": 14, "unpriced": 14}
    of_member = {f"members.0.{key}": amount for key, amount in took.items()}
    why = ": 14 answers came without a token count"
    amounts = [
        ("calls", "208"),
        ("tokens of questions", f"at least 1,940{why}"),
        ("tokens of answers", f"unknown{why}"),
        ("cost", f"at least $0.50{why}"),
    ]
    assert usage_by_annotator({**took, **of_member}, ["a"]) == [("", amounts), ("a", amounts)]


def test_kappa_of_members_is_shown_with_its_interval() -> None:
    assert kappa({"kappa": 0.3433, "kappa_low": 0.2412, "kappa_high": 0.4388}) == [
        ("agreement of its members (kappa)", "0.34 [0.24 to 0.44]")
    ]
    assert kappa({"kappa": 1.0}) == [("agreement of its members (kappa)", "1.00")]
    assert kappa({"kappa": -0.001}) == [("agreement of its members (kappa)", "0.00")]  # not -0.00
    assert kappa({"pairs": 3}) == []


@pytest.mark.parametrize(
    ("answer", "how", "verdict"),
    [
        ({"swapped": False, "vote": 0, "verdict": "tie", "annotator": None}, "1 shown first", "neither"),
        ({"swapped": True, "vote": 1, "verdict": "second", "annotator": "x"}, "2 shown first, vote 2", "2"),
        ({"swapped": True, "vote": 0, "verdict": "unread", "annotator": None}, "2 shown first", "unread"),
    ],
)
def test_answers_say_how_they_were_asked(answer: dict[str, object], how: str, verdict: str) -> None:
    pair = {"first": "a", "second": "b", "status": "tie", "p_first": 0.5, "swap_consistent": True}
    (example,) = examples([{**pair, "answers": [{"answer_p_first": None, **answer, "answer": "raw"}]}])
    assert not example.inconsistent
    assert [(answered.how, answered.verdict, answered.raw) for answered in example.answers] == [(how, verdict, "raw")]


def test_the_annotator_is_named_if_several_answered() -> None:
    base_answer = {"swapped": False, "vote": 0, "verdict": "tie", "answer_p_first": 0.5, "answer": "raw"}
    answers = [{**base_answer, "annotator": name} for name in "ab"]
    pair = {"first": "a", "second": "b", "status": "tie", "p_first": 0.5, "swap_consistent": True, "answers": answers}
    (example,) = examples([pair])
    assert [answer.how for answer in example.answers] == ["a, 1 shown first", "b, 1 shown first"]


@pytest.mark.parametrize(
    ("verdict", "p_first", "written", "said", "raw"),
    [
        ("first", 0.71, "", "1, 71% sure", None),
        ("second", 0.25, "", "2, 75% sure", None),
        ("second", 0.0, "", "2", None),
        ("tie", 0.5, "", "neither", None),
        ("first", 1.0, "It is 1.", "1", "It is 1."),
        ("unread", None, "", "unread", ""),
    ],
)
def test_scored_answers_say_how_sure_they_are_instead_of_words(
    verdict: str, p_first: float | None, written: str, said: str, raw: str | None
) -> None:
    answer = {"swapped": False, "vote": 0, "verdict": verdict, "annotator": "x", "answer": written}
    pair = {"first": "a", "second": "b", "status": "ok", "p_first": 0.9, "swap_consistent": None}
    (example,) = examples([{**pair, "answers": [{**answer, "answer_p_first": p_first}]}])
    assert [(answered.verdict, answered.raw) for answered in example.answers] == [(said, raw)]


def test_how_far_labels_can_be_trusted(words_only):
    text = Page(render(words_only)).text
    assert "answers that named the text shown first 62.5% 50.0% to 75.0% 64 answers unbiased 50%" in text
    assert "agreement with the environment's progress 90.0% 80.0% to 95.0% 40 pairs random 50%" in text
    assert "measure judge <0> judge <1> answers that could be read 100.0% [90.0% to 100.0%]" in text
    assert "position bias" not in text, "not again among the counts"
    bare = dataclasses.replace(words_only, annotation={"annotator": "x", "pairs": 1}, sample=())
    assert "can be trusted" not in Page(render(bare)).text
