"""The arms of an experiment in words: a headline, a table for terminals and one for Markdown.

Works on the `arms` section of the metrics alone; imports nothing heavy, and knows nothing about how the
numbers came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from laurel.params.training import ARMS

MAIN = "preference"
"""The arm that the whole pipeline exists for."""
BASELINE = "extrinsic"
"""What it must beat: the environment's reward alone."""
UNINFORMED = ("random_reward", "shuffled_labels", "random_policy")
"""Controls that know nothing of the task; what they reach needs no feedback."""
CONTROLS = (*UNINFORMED, "similarity")

NONE = "-"
"""Shown where a number is not defined."""

Arms = Mapping[str, Mapping[str, Any]]
Verdict = Literal["better", "mixed", "unclear", "worse", "unknown"]


@dataclass(frozen=True, slots=True)
class Headline:
    """What the metrics say, in sentences that hold in every case."""

    verdict: Verdict
    """better: beats the baseline and every uninformed control; mixed: only the baseline; unknown: not comparable."""
    sentences: tuple[str, ...]


def in_order(arms: Iterable[str]) -> list[str]:
    """Sort arms the way they are always shown: as `laurel.params.ARMS`, others behind."""
    return sorted(arms, key=lambda arm: (ARMS.index(arm) if arm in ARMS else len(ARMS), arm))


def headline(metrics: Mapping[str, Any]) -> Headline:
    """Say whether learning from preferences helped.

    One arm counts as better than another where their 95% intervals do not overlap.
    """
    arms: Arms = metrics["arms"]
    if MAIN not in arms:
        reached = "; ".join(f"{arm} reached {_reached(arms[arm])}" for arm in in_order(arms))
        return Headline(
            "unknown",
            (f"No agent was trained on preferences, so this run cannot say whether they help: {reached}.",),
        )
    main = arms[MAIN]
    if BASELINE not in arms:
        sentences = [f"{MAIN} reached {_reached(main)} {_after(main)}; there is no {BASELINE} arm to compare it with."]
        outcome = "unknown"
    else:
        outcome = _compare(main, arms[BASELINE])
        sentences = [_first_sentence(main, arms[BASELINE]), _OUTCOMES[outcome]]
        sentences += _sooner(main, arms[BASELINE])
    unbeaten = [arm for arm in CONTROLS if arm in arms and _compare(main, arms[arm]) != "better"]
    if outcome != "one_seed":
        sentences += _on_controls(arms, unbeaten)
    verdict: Verdict
    match outcome:
        case "better":
            verdict = "mixed" if set(unbeaten) & set(UNINFORMED) else "better"
        case "worse" | "unclear":
            verdict = outcome
        case _:
            verdict = "unknown"
    return Headline(verdict, tuple(sentences))


_OUTCOMES = {
    "better": f"The 95% intervals do not overlap: {MAIN} did better than {BASELINE} alone.",
    "worse": f"The 95% intervals do not overlap: {MAIN} did worse than {BASELINE} alone.",
    "unclear": f"{MAIN.capitalize()} did not clearly beat {BASELINE} alone: the 95% intervals overlap.",
    "one_seed": "With a single seed there are no intervals, and a difference may be luck: train more seeds to know.",
}


def _first_sentence(main: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
    same = main["env_steps"] == baseline["env_steps"]
    after = f"after the same {steps(main['env_steps'])} steps" if same else _after(baseline)
    before = "" if same else f" {_after(main)}"
    return f"{MAIN} reached {_reached(main)}{before}; {BASELINE} alone {_value(baseline, _measure(main))} {after}."


def _sooner(main: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[str]:
    """Compare the steps that two arms took to the threshold."""
    ours, theirs = main["steps_to_threshold"], baseline["steps_to_threshold"]
    if not ours or not theirs:
        return []
    if not ours["reached"] and not theirs["reached"]:
        return ["Neither reached the threshold while training."]
    took = f"{MAIN} {threshold(ours)}, {BASELINE} {threshold(theirs)}".replace(")", " seeds)")
    return [f"Steps to the threshold (median): {took}."]


def _on_controls(arms: Arms, unbeaten: list[str]) -> list[str]:
    main = arms[MAIN]
    measure = _measure(main)
    controls = [arm for arm in CONTROLS if arm in arms]
    sentences = []
    if controls and not unbeaten:
        sentences.append(f"It beat every control: {_values(arms, controls, measure)}.")
    elif unbeaten:
        ahead = [arm for arm in unbeaten if _compare(main, arms[arm]) == "worse"]
        level = [arm for arm in unbeaten if arm not in ahead]
        if level:
            sentences.append(f"It did not clearly beat {_values(arms, level, measure)}.")
        if ahead:
            sentences.append(f"A control did better: {_values(arms, ahead, measure)}.")
        if set(unbeaten) & set(UNINFORMED):
            sentences.append("What a control reaches without knowing the task cannot be credited to the feedback.")
    if "oracle" in arms:
        sentences.append(f"The oracle, hand-written progress as an upper bound, reached {_reached(arms['oracle'])}.")
    return sentences


def _compare(arm: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return better, worse, unclear, or one_seed where an interval is missing."""
    measure = _measure(arm)
    ours, theirs = arm[measure], other[measure]
    if not ours or not theirs or not ours["ci95"] or not theirs["ci95"]:
        return "one_seed"
    if ours["ci95"][0] > theirs["ci95"][1]:
        return "better"
    if ours["ci95"][1] < theirs["ci95"][0]:
        return "worse"
    return "unclear"


def _measure(arm: Mapping[str, Any]) -> str:
    return "success" if arm["success"] else "return"


def _reached(arm: Mapping[str, Any]) -> str:
    measure = _measure(arm)
    return f"a {'success rate' if measure == 'success' else 'return'} of {_value(arm, measure)}"


def _value(arm: Mapping[str, Any], measure: str) -> str:
    return f"{number(arm[measure]['iqm'])} {interval(arm[measure]['ci95'])}".rstrip()


def _values(arms: Arms, names: Iterable[str], measure: str) -> str:
    return ", ".join(f"{arm} {_value(arms[arm], measure)}" for arm in names)


def _after(arm: Mapping[str, Any]) -> str:
    return f"after {steps(arm['env_steps'])} steps"


# -- numbers --------------------------------------------------------------------------------------
def number(value: float | None) -> str:
    """Write a number with two decimals, fewer where it is large.

    >>> number(0.987), number(-0.001), number(123.45), number(12345.6), number(None)
    ('0.99', '0.00', '123.5', '12,346', '-')
    """
    if value is None:
        return NONE
    decimals = 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"


def interval(bounds: list[float] | None) -> str:
    """Write an interval; nothing where there is none."""
    return f"[{number(bounds[0])}, {number(bounds[1])}]" if bounds else ""


def steps(value: float | None) -> str:
    """Write a number of steps.

    >>> steps(950), steps(200_000), steps(131_072), steps(1_500_000), steps(None)
    ('950', '200k', '131k', '1.5M', '-')
    """
    if value is None:
        return NONE
    if value >= 999_500:
        return f"{value / 1e6:.2f}".rstrip("0").rstrip(".") + "M"
    if value >= 10_000:
        return f"{value / 1e3:.0f}k"
    if value >= 1_000:
        return f"{value / 1e3:.1f}".removesuffix(".0") + "k"
    return f"{value:.0f}"


def threshold(entry: Mapping[str, Any] | None) -> str:
    """Write the median steps to the threshold and how many seeds got there.

    >>> threshold({"median": 45_000.0, "reached": 4, "of": 5})
    '45k (4 of 5)'
    """
    if entry is None:
        return NONE
    if entry["reached"] == 0:
        return f"never (0 of {entry['of']})"
    return f"{steps(entry['median'])} ({entry['reached']} of {entry['of']})"


# -- tables ---------------------------------------------------------------------------------------
def columns(metrics: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table of arms; columns that no arm has are left out."""
    arms: Arms = metrics["arms"]
    over = next((a["probability_of_improvement"]["over"] for a in arms.values() if a["probability_of_improvement"]), "")
    shown = in_order(arms)
    table_columns = {"arm": shown, "return": [_value(arms[arm], "return") for arm in shown]}
    if any(arm["success"] for arm in arms.values()):
        table_columns["success"] = [_value(arms[arm], "success") if arms[arm]["success"] else NONE for arm in shown]
    if any(arm["steps_to_threshold"] for arm in arms.values()):
        table_columns["steps to threshold"] = [threshold(arms[arm]["steps_to_threshold"]) for arm in shown]
    if over:
        table_columns[f"P(> {over})"] = [_improvement(arms[arm]["probability_of_improvement"]) for arm in shown]
    table_columns["seeds"] = [str(len(arms[arm]["seeds"])) for arm in shown]
    table_columns["env steps"] = [steps(arms[arm]["env_steps"]) for arm in shown]
    return list(table_columns), [list(row) for row in zip(*table_columns.values(), strict=True)]


def table(metrics: Mapping[str, Any]) -> str:
    """Return the arms as aligned plain text; the first column to the left, numbers to the right."""
    heads, rows = columns(metrics)
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in (heads, ["-" * width for width in widths], *rows)
    ]
    return "\n".join([*(line.rstrip() for line in lines), "", legend(metrics)])


def legend(metrics: Mapping[str, Any]) -> str:
    """Say in a sentence what the table's numbers are."""
    arms: Arms = metrics["arms"]
    over = next((a["probability_of_improvement"]["over"] for a in arms.values() if a["probability_of_improvement"]), "")
    improvement = f"; P(> {over}): probability that a seed returns more than one of {over}" if over else ""
    return f"Interquartile means over seeds with 95% bootstrap intervals (none with a single seed){improvement}."


def markdown_table(metrics: Mapping[str, Any]) -> str:
    """Return the arms as a Markdown table, the main arm in bold."""
    heads, rows = columns(metrics)
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    lines += [[f"**{cell}**" for cell in row] if row[0] == MAIN else row for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _improvement(entry: Mapping[str, Any] | None) -> str:
    return f"{number(entry['value'])} {interval(entry['ci95'])}".rstrip() if entry else NONE
