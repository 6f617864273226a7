import re
from typing import Any

import pytest

from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.gates import Checked, check_gates
from laurel.feedback.rates import rate
from laurel.params.annotation import AnnotateParams, GateParams

CHAT = AnnotateParams.model_validate({"annotator": "openai", "openai": {"model": "m"}})

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


def checked(gates: GateParams, quality: dict[str, Any]) -> Checked:
    return check_gates(gates, quality, kind_of(CHAT).advice)


def test_good_labels_pass() -> None:
    found = checked(STRICT, GOOD)
    assert (found.refusals, found.warnings, found.notes) == ([], [], [])
    assert found.limits["parse_rate"] == {"gate": "min_parse_rate", "low": 0.95, "high": 1.0, "passed": True}
    assert checked(GateParams(), {}) == Checked()


@pytest.mark.parametrize(
    ("figure", "bad", "words"),
    [
        (
            "parse_rate", rate(60, 100),
            r"60\.0% of answers could be read \(95% interval 50\.2% to 69\.1%, of 100\), but at least 95\.0% is "
            r"allowed \(annotate\.gates\.min_parse_rate\)\. Try another prompt .* all answers are kept",
        ),
        ("position_bias", rate(90, 100), r"but at least 40\.0% and at most 60\.0% is allowed .*max_position_bias"),
        ("position_bias", rate(10, 100), r"10\.0% of decided answers preferred the text shown first"),
        ("swap_consistency", rate(50, 100), r"at least 80\.0% is allowed .*min_swap_consistency"),
        ("intransitivity", rate(25, 100), r"at most 10\.0% is allowed .*max_intransitive"),
        ("oracle", {"agreement": rate(40, 100)}, r"agree with the environment's hand-written progress .*min_agreement"),
        ("gold", {"agreement": rate(40, 100)}, r"40\.0% of labels agree with a person's .*min_agreement"),
    ],
)  # fmt: skip
def test_bad_labels_are_stopped(figure: str, bad: Any, words: str) -> None:
    found = checked(STRICT, {**GOOD, figure: bad})
    (refusal,) = found.refusals
    assert re.search(words, refusal)
    assert [gate["passed"] for name, gate in found.limits.items() if name.startswith(figure)] == [False]


def test_a_gate_compares_the_bound_of_the_interval() -> None:
    """A figure on the wrong side does not stop a run where chance may have put it there."""
    gates = GateParams(min_swap_consistency=0.8)
    assert checked(gates, {"swap_consistency": rate(7, 10)}).refusals == []
    assert checked(gates, {"swap_consistency": rate(700, 1000)}).refusals


def test_a_bound_at_the_limit_passes() -> None:
    gates = GateParams(min_swap_consistency=0.8, max_intransitive=0.1)
    at_limits = {"swap_consistency": [0.6, 0.8], "intransitivity": [0.1, 0.3]}
    assert checked(gates, {name: {"value": 0.5, "ci95": ends, "of": 9} for name, ends in at_limits.items()}) == Checked(
        limits={
            "swap_consistency": {"gate": "min_swap_consistency", "low": 0.8, "high": 1.0, "passed": True},
            "intransitivity": {"gate": "max_intransitive", "low": 0.0, "high": 0.1, "passed": True},
        }
    )


def test_all_errors_are_reported() -> None:
    bad = {**GOOD, "parse_rate": rate(10, 100), "intransitivity": rate(30, 100)}
    parsed, circles = checked(STRICT, bad).refusals
    assert "min_parse_rate" in parsed
    assert "max_intransitive" in circles


@pytest.mark.parametrize(
    ("figure", "value", "gate"),
    [
        ("position_bias", rate(1000, 1000), "max_position_bias"),
        ("position_bias", rate(0, 1000), "max_position_bias"),
        ("parse_rate", rate(700, 1000), "min_parse_rate"),
        ("answer_abstain_rate", rate(950, 1000), "max_abstain_rate"),
    ],
)
def test_the_worst_labels_are_stopped_even_without_gates(figure: str, value: Any, gate: str) -> None:
    found = checked(GateParams(), {**GOOD, figure: value})
    (refusal,) = found.refusals
    assert f"annotate.gates.{gate}" in refusal
    assert "annotate.openai.model" in refusal, "of the annotator in use"
    assert found.warnings == [], "once is enough"


@pytest.mark.parametrize(
    ("figure", "value", "words"),
    [
        ("position_bias", rate(800, 1000), r"80\.0% of decided answers preferred the text shown first .*30\.0% and"),
        ("parse_rate", rate(92, 100), None),
        ("parse_rate", rate(920, 1000), r"92\.0% of answers could be read"),
        ("answer_abstain_rate", rate(300, 1000), r"30\.0% of answers declined to say"),
    ],
)
def test_bad_labels_are_warned_of_without_gates(figure: str, value: Any, words: str | None) -> None:
    off = GateParams(min_parse_rate=None, max_position_bias=None, max_abstain_rate=None)
    for gates in (GateParams(), off):
        found = checked(gates, {**GOOD, figure: value})
        assert found.refusals == []
        assert len(found.warnings) == (words is not None)
        assert words is None or re.search(words, found.warnings[0])


def test_a_member_with_position_bias_is_named() -> None:
    """In the mean over several annotators the bias of one of them is hidden."""
    by = [{"annotator": "members[0]: a", "position_bias": rate(990, 1000)}, {"annotator": "members[1]: b"}]
    (warning,) = checked(GateParams(), {**GOOD, "by": by}).warnings
    assert warning.startswith("members[0]: a: 99.0% of decided answers preferred the text shown first")


@pytest.mark.parametrize("annotator", ["embedding", "scripted", "openai", "huggingface", "ensemble"])
def test_the_hint_names_the_annotator_in_use(annotator: str) -> None:
    members = {"members": [{"annotator": "embedding"}, {"annotator": "scripted"}]}
    params = {"annotator": annotator, "openai": {"model": "m"}, "ensemble": members}
    advice = kind_of(AnnotateParams.model_validate(params)).advice
    used = {"openai": ("openai", "language_model"), "huggingface": ("huggingface", "language_model")}
    sections = {"embedding", "scripted", "openai", "huggingface", "language_model", "ensemble"}
    for words in (advice.asking, advice.aim, advice.ties):
        named = set(re.findall(r"annotate\.(\w+)", words)) & sections
        assert named
        assert named <= set(used.get(annotator, (annotator,)))


@pytest.mark.parametrize("annotator", ["embedding", "openai", "huggingface", "ensemble"])
@pytest.mark.parametrize("band", [0.0, 0.01])
def test_a_smaller_tie_band_is_advised_only_where_there_is_one(annotator: str, band: float) -> None:
    """A judge that calls everything equal was told to lower a band of zero, which is the default of most."""
    section = {"embedding": "embedding", "ensemble": "ensemble"}.get(annotator, "language_model")
    members = {"members": [{"annotator": "embedding"}, {"annotator": "scripted"}]}
    params: dict[str, Any] = {"annotator": annotator, "openai": {"model": "m"}, "ensemble": members}
    params[section] = {**params.get(section, {}), "tie_band": band}
    ties = kind_of(AnnotateParams.model_validate(params)).advice.ties
    assert (f"a smaller tie band (annotate.{section}.tie_band)" in ties) == (band > 0)


def test_gates_that_do_not_apply_are_noted() -> None:
    gates = GateParams(max_position_bias=0.1, min_swap_consistency=0.5)
    notes = checked(gates, {"tie_rate": rate(1, 10)}).notes
    assert [note.split(" was not checked")[0] for note in notes] == [
        "annotate.gates.max_position_bias", "annotate.gates.min_swap_consistency",
    ]  # fmt: skip
    assert checked(GateParams(), {"tie_rate": rate(1, 10)}).notes == [], "these are defaults"


def test_without_references_there_is_no_agreement() -> None:
    found = checked(GateParams(min_agreement=0.6), {})
    (refusal,) = found.refusals
    assert found.notes == [], "it is not said twice"
    assert re.search(r"nothing to compare labels with, .*laurel annotate review", refusal)


def test_too_little_gold() -> None:
    gates = GateParams(min_gold_pairs=30)
    for gold in ({}, {"gold": {"agreement": rate(20, 20)}}):
        (refusal,) = checked(gates, gold).refusals
        assert re.search(r"(0|20) labels can be compared .* at least 30 are required", refusal)
    assert checked(gates, {"gold": {"agreement": rate(30, 30)}}).refusals == []


def test_abstentions_are_gated_for_judges_without_single_answers_too() -> None:
    found = checked(GateParams(), {"abstain_rate": rate(700, 1000)})
    (refusal,) = found.refusals
    assert "70.0% of pairs got no label" in refusal
    assert "annotate.gates.max_abstain_rate" in refusal
    both = {"abstain_rate": rate(700, 1000), "answer_abstain_rate": rate(100, 1000)}
    assert checked(GateParams(), both).refusals == [], "single answers are what is gated where there are any"
