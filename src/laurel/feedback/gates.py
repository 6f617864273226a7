"""Quality gates: conditions on labels before anything is trained on them, and warnings about ungated figures.

A gate stops a run if the whole 95% interval of its figure is outside the allowed range, so that a few pairs cannot stop
it by chance; `min_gold_pairs` is the minimum number of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from laurel.feedback.annotator_kind import Advice
from laurel.feedback.success import SUCCESS
from laurel.params.annotation import GateParams

REVIEW = "`laurel annotate review --sample uniform`"
MOST_BIAS = 0.2
_WARNED = {"min_parse_rate": 0.95, "max_position_bias": MOST_BIAS, "max_abstain_rate": 0.1}
"""Limits for warnings, independent of gates."""


def _at_least(value: float) -> tuple[float, float]:
    return value, 1.0


def _at_most(value: float) -> tuple[float, float]:
    return 0.0, value


def _around_half(value: float) -> tuple[float, float]:
    return round(0.5 - value, 12), round(0.5 + value, 12)


_GATES: Mapping[str, tuple[str, Callable[[float], tuple[float, float]], str, str]] = {
    "min_parse_rate": ("parse_rate", _at_least, "answers could be read", ", or more max_tokens"),
    "max_position_bias": ("position_bias", _around_half, "decided answers preferred the text shown first", ""),
    "max_abstain_rate": ("answer_abstain_rate", _at_most, "answers declined to say which is better", ""),
    "min_swap_consistency": (
        "swap_consistency", _at_least, "pairs got the same label in either order", ", or more votes",
    ),
    "max_intransitive": ("intransitivity", _at_most, "judged triads are intransitive", ", or more votes"),
}  # fmt: skip
"""Gate -> its figure in quality.json, the allowed range, what the figure is a share of, and a further remedy."""


_WITHOUT_ANSWERS = {"max_abstain_rate": ("abstain_rate", "pairs got no label, as the annotator declined to choose")}
"""The same for annotators that give labels without single answers."""


@dataclass(frozen=True, slots=True)
class _Limit:
    """A limit on a figure."""

    name: str
    """Name of the gate."""
    figure: str
    """Name of the figure in quality.json, such as parse_rate or gold.agreement."""
    rate: Mapping[str, Any] | None
    """Its value; None if it does not apply to the annotator."""
    low: float
    high: float
    """The limit."""
    what: str
    """The whole of which the figure is a share."""
    remedy: str

    @property
    def passed(self) -> bool:
        return self.rate is None or bool(self.rate["ci95"][0] <= self.high and self.rate["ci95"][1] >= self.low)

    @property
    def allowed(self) -> str:
        lowest, highest = f"at least {self.low:.1%}", f"at most {self.high:.1%}"
        return lowest if self.high == 1 else highest if self.low == 0 else f"{lowest} and {highest}"

    @property
    def fact(self) -> str:
        """The figure as text."""
        assert self.rate is not None
        return f"{self.rate['value']:.1%} of {self.what} ({interval(self.rate)})"

    @property
    def kept(self) -> dict[str, Any]:
        """Its entry in quality.json."""
        return {"gate": self.name, "low": self.low, "high": self.high, "passed": self.passed}

    @property
    def refusal(self) -> str:
        return (
            f"{self.fact}, but {self.allowed} is allowed (annotate.gates.{self.name}). Try {self.remedy}, or set the "
            "gate to null: all answers are kept, and are not asked for again."
        )

    @property
    def warning(self) -> str:
        return f"{self.fact}, which is far from {self.allowed}. Try {self.remedy}."


@dataclass(frozen=True)
class Checked:
    """The outcome of checking the gates."""

    refusals: list[str] = field(default_factory=list)
    """A sentence for each failed gate."""
    warnings: list[str] = field(default_factory=list)
    """A sentence for each bad figure without a failed gate."""
    notes: list[str] = field(default_factory=list)
    """A sentence for each gate that could not be checked."""
    limits: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Figure -> the gate on it that was checked: its name, what it allows (low, high), and whether labels passed."""


def interval(rate: Mapping[str, Any]) -> str:
    """Format the interval of a share and its number of cases."""
    low, high = rate["ci95"]
    return f"95% interval {low:.1%} to {high:.1%}, of {rate['of']:,}"


def check_gates(gates: GateParams, quality: Mapping[str, Any], advice: Advice) -> Checked:
    """Check the labels against the gates.

    Args:
        quality: from `laurel.feedback.quality.measure`.
    """
    limits = list(_limits(gates, quality, advice))
    failed = [limit for limit in limits if not limit.passed]
    stopped = {limit.figure for limit in failed}
    return Checked(
        refusals=[limit.refusal for limit in failed] + _missing(gates, quality),
        warnings=[
            annotator + limit.warning
            for annotator, figures in _subjects(quality)
            for limit in (_limit(name, value, figures, advice) for name, value in _WARNED.items())
            if not limit.passed and not (limit.figure in stopped and figures is quality)
        ],
        notes=[
            f"annotate.gates.{limit.name} was not checked: this annotator does not report it."
            for limit in limits
            if limit.rate is None and limit.name != "min_agreement" and _was_set(gates, limit.name)
        ],
        limits={limit.figure: limit.kept for limit in limits if limit.rate is not None},
    )


def _was_set(gates: GateParams, name: str) -> bool:
    """Whether a gate differs from its default: a default that does not apply to an annotator needs no note."""
    return bool(getattr(gates, name) != type(gates).model_fields[name].default)


def check_success(gates: GateParams, answers: Mapping[str, Any], advice: Advice) -> Checked:
    """Check that an annotator prefers success at the task, before other questions.

    Args:
        gates: min_success_preferred is used.
        answers: from `laurel.feedback.success.ask_success`.
    """
    if "ci95" not in answers:
        return Checked(warnings=[_undecided(answers, advice)])
    least = gates.min_success_preferred
    decided = f"{answers['of']:,} of {answers['questions']:,}"
    description = f"questions with known answers that were decided ({decided}) preferred success at the task"
    limit = _Limit(
        "min_success_preferred", SUCCESS, answers, 0.5 if least is None else least, 1.0, description, advice.aim
    )
    if limit.passed and (answers["ci95"][0] >= 0.5 or not answers["above"]):
        result = Checked()
    else:
        fact = f"{limit.fact}: it ranks {_quoted(answers['above'])} above {_quoted(answers['success'][:1])}"
        if limit.passed or least is None:
            result = Checked(warnings=[f"{fact}. Try {limit.remedy}."])
        else:
            refusal = (
                f"{fact}, but {limit.allowed} is allowed (annotate.gates.{limit.name}). Try {limit.remedy}, or set the "
                "gate to null if success at the task is not the goal."
            )
            result = Checked(refusals=[refusal])
    return result if least is None else replace(result, limits={SUCCESS: limit.kept})


def _undecided(answers: Mapping[str, Any], advice: Advice) -> str:
    """Describe an annotator that preferred neither success at the task nor another outcome."""
    if not answers["questions"]:
        return (
            "The annotator was not asked whether success at the task is better than another outcome. If the budget was "
            "spent, raise annotate.budget."
        )
    if answers.get("failed") == answers["questions"]:
        return (
            f"None of the {answers['questions']} questions about success at the task against another outcome got an "
            f"answer that can be read. Try {advice.asking}."
        )
    finding = (
        f"The annotator preferred neither text in any of {answers['questions']} questions about success at the task "
        "against another outcome"
    )
    if not answers["sided"]:
        return f"{finding}. Try {advice.ties}."
    return (
        f"{finding}; {answers['first_named']} of its {answers['sided']} decided answers preferred the text shown "
        f"first. Try {advice.asking}."
    )


def _quoted(captions: Sequence[str]) -> str:
    """Name captions."""
    *firsts, last = (f'"{" ".join(caption.split())[:120]}"' for caption in captions)
    return f"{', '.join(firsts)} and {last}" if firsts else last


def _subjects(quality: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the start of a sentence and figures: of all labels, then of each annotator if several voted."""
    yield "", quality
    for figures in quality.get("by", ()):
        yield f"{figures['annotator']}: ", figures


def _limits(gates: GateParams, quality: Mapping[str, Any], advice: Advice) -> Iterator[_Limit]:
    """Yield the limits that are set."""
    for name in _GATES:
        if (value := getattr(gates, name)) is not None:
            yield _limit(name, value, quality, advice)
    if (least := gates.min_agreement) is not None:
        source, reference = _source(quality)
        agreement = quality.get(source, {}).get("agreement")
        description = f"labels agree with {reference}"
        yield _Limit("min_agreement", f"{source}.agreement", agreement, least, 1.0, description, advice.aim)


def _limit(name: str, value: float, quality: Mapping[str, Any], advice: Advice) -> _Limit:
    figure, bounds, description, further = _GATES[name]
    if figure not in quality and name in _WITHOUT_ANSWERS:
        figure, description = _WITHOUT_ANSWERS[name]
    return _Limit(name, figure, quality.get(figure), *bounds(value), description, f"{advice.asking}{further}")


def _source(quality: Mapping[str, Any]) -> tuple[str, str]:
    """Return the reference that labels must agree with: gold, or the oracle if there is no gold."""
    if "agreement" in quality.get("gold", {}):
        return "gold", "a person's"
    return "oracle", "the environment's hand-written progress"


def _missing(gates: GateParams, quality: Mapping[str, Any]) -> list[str]:
    """Describe missing or too few reference labels."""
    sentences = []
    compared = quality.get("gold", {}).get("agreement", {"of": 0})["of"]
    if gates.min_gold_pairs is not None and compared < gates.min_gold_pairs:
        sentences.append(
            f"{compared} labels can be compared with a person's on uniformly drawn pairs, but at least "
            f"{gates.min_gold_pairs} are required (annotate.gates.min_gold_pairs). Label more with {REVIEW}, and name "
            "the file as annotate.gold."
        )
    if gates.min_agreement is not None and "agreement" not in quality.get(_source(quality)[0], {}):
        sentences.append(
            "There is nothing to compare labels with, but annotate.gates.min_agreement is set. Label pairs with "
            f"{REVIEW} and name the file as annotate.gold, or set the gate to null."
        )
    return sentences
