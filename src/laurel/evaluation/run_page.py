"""The page next to the report, with what differs between equal runs: time, machine, duration and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from laurel.data.usage import Usage
from laurel.evaluation.label_report import usage_by_annotator


@dataclass(frozen=True)
class RunFacts:
    """The content of the page."""

    title: str
    """The environment's id."""
    provenance: Sequence[str] = ()
    """When, from which commit and on what machine the report was made, in a few words each."""
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    """Stage -> seconds that it took, in the order of the stages; stages without a known time are left out."""
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """Stage -> what asking took there: calls, tokens, cost; in annotate of an ensemble's members, too."""
    annotators: Sequence[str] = ()
    """Names of an ensemble's members."""
    notes: Sequence[str] = ()
    """Problems without effect on the results."""


def render_run(facts: RunFacts) -> str:
    """Return the page as one HTML document."""
    environment = Environment(loader=PackageLoader("laurel.evaluation"), autoescape=True, undefined=StrictUndefined)
    environment.filters["seconds"] = in_words
    values: dict[str, Any] = {
        "facts": facts,
        "longest": max(facts.stage_seconds.values(), default=0.0) or 1.0,
        "total": sum(facts.stage_seconds.values()),
        "usage": [
            (f"{stage}: {name}" if name else stage, amounts)
            for stage, usage in facts.usage.items()
            for name, amounts in usage_by_annotator(usage, facts.annotators)
        ],
    }
    return environment.get_template("run.html.j2").render(values)


def in_words(value: float) -> str:
    """Write a duration.

    >>> in_words(0.34), in_words(12.3), in_words(75), in_words(7260)
    ('0.3 s', '12 s', '1 min 15 s', '2 h 1 min')
    """
    if value < 10:
        return f"{value:.1f} s"
    seconds = round(value)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
