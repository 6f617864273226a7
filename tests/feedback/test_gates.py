from typing import Any

import pytest

from laurel.errors import AnnotationError
from laurel.feedback.gates import check_gates
from laurel.feedback.rates import rate
from laurel.params.annotation import GateParams

GOOD: dict[str, Any] = {
    "parse_rate": rate(99, 100),
    "position_bias": rate(52, 100),
    "swap_consistency": rate(90, 100),
    "intransitivity": rate(1, 100),
    "oracle": {"agreement": rate(80, 100)},
}
STRICT = GateParams(
    min_parse_rate=0.95, max_position_bias=0.1, min_swap_consistency=0.8, max_intransitive=0.1, min_agreement=0.7
)


def test_good_labels_pass() -> None:
    assert check_gates(STRICT, GOOD) == []
    assert check_gates(GateParams(), {}) == []


@pytest.mark.parametrize(
    ("figure", "bad", "words"),
    [
        (
            "parse_rate", rate(60, 100),
            r"60\.0% of answers could be read \(95% interval 50\.2% to 69\.1%, of 100\), but at least 95\.0% is "
            r"allowed \(annotate\.gates\.min_parse_rate\)\. Try another prompt .* all answers are kept",
        ),
        ("position_bias", rate(90, 100), r"but at least 40\.0% and at most 60\.0% is allowed .*max_position_bias"),
        ("position_bias", rate(10, 100), r"10\.0% of answers with a side named the text shown first"),
        ("swap_consistency", rate(50, 100), r"at least 80\.0% is allowed .*min_swap_consistency"),
        ("intransitivity", rate(25, 100), r"at most 10\.0% is allowed .*max_intransitive"),
        ("oracle", {"agreement": rate(40, 100)}, r"agree with the environment's hand-written progress .*min_agreement"),
        ("gold", {"agreement": rate(40, 100)}, r"40\.0% of labels agree with a person's .*min_agreement"),
    ],
)  # fmt: skip
def test_bad_labels_are_stopped(figure: str, bad: Any, words: str) -> None:
    with pytest.raises(AnnotationError, match=words):
        check_gates(STRICT, {**GOOD, figure: bad})


def test_the_bound_is_what_counts() -> None:
    """A figure on the wrong side does not stop a run where chance may have put it there."""
    gates = GateParams(min_swap_consistency=0.8)
    assert check_gates(gates, {"swap_consistency": rate(7, 10)}) == []
    with pytest.raises(AnnotationError):
        check_gates(gates, {"swap_consistency": rate(700, 1000)})


def test_all_that_is_wrong_is_said() -> None:
    bad = {**GOOD, "parse_rate": rate(10, 100), "intransitivity": rate(30, 100)}
    with pytest.raises(AnnotationError, match=r"(?s)min_parse_rate.*\n.*max_intransitive"):
        check_gates(STRICT, bad)


def test_what_does_not_apply_is_noted() -> None:
    gates = GateParams(max_position_bias=0.1, min_swap_consistency=0.5)
    notes = check_gates(gates, {"tie_rate": rate(1, 10)})
    assert [note.split(" was not checked")[0] for note in notes] == [
        "annotate.gates.max_position_bias", "annotate.gates.min_swap_consistency",
    ]  # fmt: skip


def test_nothing_to_agree_with_is_no_agreement() -> None:
    with pytest.raises(AnnotationError, match=r"nothing that labels could agree with, .*laurel annotate review"):
        check_gates(GateParams(min_agreement=0.6), {})


def test_too_little_gold() -> None:
    gates = GateParams(min_gold_pairs=30)
    for gold in ({}, {"gold": {"agreement": rate(20, 20)}}):
        with pytest.raises(AnnotationError, match=r"(0|20) labels can be compared .* at least 30 are wanted"):
            check_gates(gates, gold)
    assert check_gates(gates, {"gold": {"agreement": rate(30, 30)}}) == []
