"""Gates: what labels must hold before anything is trained on them.

A gate stops a run where the whole 95% interval of its figure lies outside of what is allowed, so that a few pairs do
not stop it by chance; how few are too few to tell is a gate of its own. Knows figures and limits; knows nothing about
how either came about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laurel.errors import AnnotationError

if TYPE_CHECKING:
    from laurel.params.annotation import GateParams

REVIEW = "`laurel annotate review --sample uniform`"


@dataclass(frozen=True, slots=True)
class _Gate:
    """A limit that was set."""

    name: str
    rate: Mapping[str, Any] | None
    """Its figure; None where it does not apply to the annotator."""
    low: float
    high: float
    """What is allowed."""
    what: str
    """What the figure is a share of."""
    remedy: str

    @property
    def passed(self) -> bool:
        assert self.rate is not None
        return bool(self.rate["ci95"][0] <= self.high and self.rate["ci95"][1] >= self.low)

    @property
    def refusal(self) -> str:
        assert self.rate is not None
        low, high = self.rate["ci95"]
        least, most = f"at least {self.low:.1%}", f"at most {self.high:.1%}"
        allowed = least if self.high == 1 else most if self.low == 0 else f"{least} and {most}"
        return (
            f"{self.rate['value']:.1%} of {self.what} (95% interval {low:.1%} to {high:.1%}, of {self.rate['of']:,}), "
            f"but {allowed} is allowed (annotate.gates.{self.name}). Try {self.remedy}, or set the gate to null: all "
            "answers are kept, and are not asked for again."
        )


def check_gates(gates: GateParams, quality: Mapping[str, Any]) -> list[str]:
    """Refuse labels that a gate does not let pass.

    Args:
        gates: the limits; null is none.
        quality: as `laurel.feedback.quality.measure` says.

    Returns:
        A sentence for each gate that could not be checked, because its figure does not apply to the annotator.

    Raises:
        AnnotationError: labels do not pass, or are to agree with something but there is nothing to compare them with.
    """
    limits = list(_limits(gates, quality))
    failed = [gate.refusal for gate in limits if gate.rate is not None and not gate.passed]
    failed += _missing(gates, quality)
    if failed:
        raise AnnotationError("\n".join(failed))
    return [
        f"annotate.gates.{gate.name} was not checked: this annotator, as it was asked, gives nothing to measure it by."
        for gate in limits
        if gate.rate is None and gate.name != "min_agreement"
    ]


def _limits(gates: GateParams, quality: Mapping[str, Any]) -> Iterator[_Gate]:
    """Yield the limits that are set."""
    if (least := gates.min_parse_rate) is not None:
        what, remedy = "answers could be read", "another prompt or model, or more max_tokens"
        yield _Gate("min_parse_rate", quality.get("parse_rate"), least, 1.0, what, remedy)
    if (off := gates.max_position_bias) is not None:
        what, remedy = "answers with a side named the text shown first", "another prompt or model"
        yield _Gate("max_position_bias", quality.get("position_bias"), 0.5 - off, 0.5 + off, what, remedy)
    if (least := gates.min_swap_consistency) is not None:
        what, remedy = "pairs got the same label in either order", "another prompt or model, or more votes"
        yield _Gate("min_swap_consistency", quality.get("swap_consistency"), least, 1.0, what, remedy)
    if (most := gates.max_intransitive) is not None:
        what, remedy = "judged triads run in a circle", "another prompt or model, or more votes"
        yield _Gate("max_intransitive", quality.get("intransitivity"), 0.0, most, what, remedy)
    if (least := gates.min_agreement) is not None:
        source, whose = _source(quality)
        what, remedy = f"labels agree with {whose}", "another prompt, goal or model"
        yield _Gate("min_agreement", quality.get(source, {}).get("agreement"), least, 1.0, what, remedy)


def _source(quality: Mapping[str, Any]) -> tuple[str, str]:
    """Return what labels must agree with: gold, or the oracle where there is no gold."""
    if "agreement" in quality.get("gold", {}):
        return "gold", "a person's"
    return "oracle", "the environment's hand-written progress"


def _missing(gates: GateParams, quality: Mapping[str, Any]) -> list[str]:
    """Say what there is too little of to compare labels with."""
    sentences = []
    compared = quality.get("gold", {}).get("agreement", {"of": 0})["of"]
    if gates.min_gold_pairs is not None and compared < gates.min_gold_pairs:
        sentences.append(
            f"{compared} labels can be compared with a person's on pairs chosen evenly, but at least "
            f"{gates.min_gold_pairs} are wanted (annotate.gates.min_gold_pairs). Label more with {REVIEW}, and name "
            "the file as annotate.gold."
        )
    if gates.min_agreement is not None and "agreement" not in quality.get(_source(quality)[0], {}):
        sentences.append(
            "There is nothing that labels could agree with, but annotate.gates.min_agreement is set. Label pairs with "
            f"{REVIEW} and name the file as annotate.gold, or set the gate to null."
        )
    return sentences
