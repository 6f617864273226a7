"""quality.json: statistics of the quality of labels, and their descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

QUALITY = "quality.json"

MEASURES = {
    "success_preferred": ("success at the task preferred to another outcome", "questions", "random 50%"),
    "parse_rate": ("answers that could be read", "answers", ""),
    "failure_rate": ("questions without an answer", "questions", ""),
    "unusable_rate": ("answers that are missing or could not be read", "questions", ""),
    "answer_tie_rate": ("answers that named neither", "answers", ""),
    "answer_abstain_rate": ("answers that declined to choose", "answers", ""),
    "position_bias": ("answers that named the text shown first", "answers", "unbiased 50%"),
    "swap_consistency": ("pairs with the same label in either order", "pairs", ""),
    "tie_rate": ("pairs that are ties", "pairs", ""),
    "abstain_rate": ("pairs that the annotator abstained from", "pairs", ""),
    "intransitivity": ("intransitive triads", "triads", "random 25%"),
}
"""For each share: its name, unit, and reference value."""

REFERENCES = {
    "gold": "a person",
    "gold_uncertain": "a person, where in doubt",
    "oracle": "the environment's progress",
}
"""Reference that labels are compared with -> description."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the quality report."""

    measure: str
    value: float
    interval: tuple[float, float] | None
    """95%; None where the value is not a share."""
    of: int
    """Number of cases."""
    unit: str
    """The unit that is counted or measured."""
    remark: str
    """A remark, such as a reference value."""
    gate: str = ""
    """The limit of its gate, and whether it passed; empty without a gate."""

    @property
    def shown(self) -> str:
        """The value: a share in percent, anything else with three decimals."""
        return f"{self.value:.3f}" if self.interval is None else f"{100 * self.value:.1f}%"

    @property
    def shown_interval(self) -> str:
        """The interval in percent; empty without one."""
        return "" if self.interval is None else f"{100 * self.interval[0]:.1f}% to {100 * self.interval[1]:.1f}%"


def figures(quality: Mapping[str, Any]) -> list[Figure]:
    """Return the lines of a report that apply."""
    gates = quality.get("gates", {})
    rows = [
        _share(quality[name], measure, unit, remark, _allowed(gates.get(name)))
        for name, (measure, unit, remark) in MEASURES.items()
        if "ci95" in quality.get(name, {})
    ]
    for name, source in REFERENCES.items():
        rows += _compared(quality.get(name, {}), source, gates.get(f"{name}.agreement"))
    return rows


def _allowed(gate: Mapping[str, Any] | None) -> str:
    """Describe a figure's gate, and say whether it passed."""
    if gate is None:
        return ""
    low, high = f"{100 * gate['low']:g}%", f"{100 * gate['high']:g}%"
    allowed = f"at least {low}" if gate["high"] == 1 else f"at most {high}" if gate["low"] == 0 else f"{low} to {high}"
    return f"gate: {allowed}, {'passed' if gate['passed'] else 'not passed'}"


def _compared(reference: Mapping[str, Any], source: str, gate: Mapping[str, Any] | None) -> Iterator[Figure]:
    if "agreement" not in reference:
        return
    yield _share(reference["agreement"], f"agreement with {source}", "pairs", "random 50%", _allowed(gate))
    if "brier" in reference:
        n, brier, error = (reference["agreement"]["of"], reference["brier"], reference["calibration_error"])
        remark = "uninformed 0.25"
        yield Figure(f"Brier score against {source}", brier, None, n, "pairs", remark)
        remark = "calibrated 0"
        yield Figure(f"calibration error against {source}", error, None, n, "pairs", remark)


def _share(rate: Mapping[str, Any], measure: str, unit: str, remark: str, gate: str) -> Figure:
    low, high = rate["ci95"]
    return Figure(measure, rate["value"], (low, high), rate["of"], unit, remark, gate)


def metrics(quality: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures as flat numbers: a share as `name`, `name_low` and `name_high`."""
    flat: dict[str, float] = {}
    for name, value in quality.items():
        match value:
            case _ if name == "gates":  # limits are parameters
                continue
            case {"ci95": [low, high]}:
                flat |= {name: value["value"], f"{name}_low": low, f"{name}_high": high}
            case dict():
                flat |= {f"{name}.{key}": number for key, number in metrics(value).items()}
            case int() | float():
                flat[name] = float(value)
    return flat


_UNLABELLED = {
    "abstain": "it declined to choose",
    "incomplete": "too few answers arrived or could be read",
    "parse_failed": "its answers could not be read",
    "api_failed": "it gave no answer",
}


def label_in_words(status: str, p_first: float | None) -> str:
    """Return a pair's label in words; `p_first` matters only if it has one."""
    if status in _UNLABELLED or p_first is None:
        return _UNLABELLED[status]
    if status == "tie":
        return "neither is better"
    side, p = ("1", p_first) if p_first > 0.5 else ("2", 1 - p_first)
    return f"{side} is better" + (f", {100 * p:.0f}% sure" if p < 1 else "")
