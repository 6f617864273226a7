"""The headline: whether feedback helped, claiming no more than the intervals do. Imports nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from laurel.evaluation.arms import arms_of, main_of
from laurel.evaluation.formats import ALPHA, counted, steps
from laurel.evaluation.summary import MEASURES, Arms, n_comparisons, reached, threshold

LEAST_SEEDS = 6
"""Fewest seeds of an arm with which a difference can be shown: with five, the interval of even P = 1 contains 1/2."""

Verdict = Literal["better", "mixed", "unclear", "worse", "unknown"]
Outcome = Literal["higher", "lower", "mostly higher", "mostly lower", "unclear", "too few seeds"]
"""mostly: most seeds return more (or less), but their mean does not, e.g. because one of ten diverges."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The conclusion from the metrics, in sentences that are always valid."""

    verdict: Verdict
    """better: ahead of all baselines and controls; mixed: only of the baselines; worse: behind a baseline;
    unclear: neither ahead of all nor behind one; unknown: nothing to compare with, or too few seeds to tell."""
    sentences: tuple[str, ...]


def headline(metrics: Mapping[str, Any]) -> Headline:
    """Return whether learning from feedback helped, in final return or in learning speed.

    A difference is claimed where the adjusted p-value is below ALPHA and the interval of P excludes one half. An arm
    is ahead of another if it is higher by one measure, with a higher mean, too, and lower by none.
    """
    arms: Arms = metrics["arms"]
    infos = arms_of(metrics)
    if (main_info := main_of(infos)) is None:
        scores = "; ".join(f"{info.name} {reached(arms[info.name])}" for info in infos)
        return Headline(
            "unknown", (f"No agent was trained on feedback, so this run cannot say whether it helps: {scores}.",)
        )
    main = main_info.name
    compared = metrics["comparisons"].get(main, {})
    outcomes = {info.name: _outcomes(metrics, main, info.name) for info in infos if info.name in compared}
    outcomes = {opponent: by_measure for opponent, by_measure in outcomes.items() if by_measure}
    baselines = [info.name for info in infos if info.role == "baseline"]
    sentences = [_first_sentence(arms, main, baselines[:1])]
    distinct = {outcome for by_measure in outcomes.values() for outcome in by_measure.values()}
    if not outcomes:
        return Headline("unknown", (*sentences, "No other arm was trained that it could be compared with."))
    if distinct == {"too few seeds"}:
        return Headline("unknown", (*sentences, _too_few(metrics, main), *_thresholds(arms, main, outcomes)))
    sentences += [
        _by_measure(measure, outcomes) for measure in MEASURES if any(measure in o for o in outcomes.values())
    ]
    sentences += _thresholds(arms, main, outcomes)
    verdicts = {opponent: _ahead(by_measure) for opponent, by_measure in outcomes.items()}
    unbeaten = any(verdicts.get(info.name, "ahead") != "ahead" for info in infos if info.role == "control")
    if unbeaten:
        sentences.append("What a control reaches without knowing the task cannot be credited to the feedback.")
    sentences += [
        f"For reference, {info.label} ({info.name}) {reached(arms[info.name])}."
        for info in infos
        if info.role == "bound"
    ]
    against = [verdicts[name] for name in baselines if name in verdicts]
    if not against:
        sentences.append("There is no baseline, such as the environment's reward alone, to compare it with.")
        return Headline("unknown", tuple(sentences))
    return Headline(_verdict(against, unbeaten=unbeaten), tuple(sentences))


def _verdict(against: Sequence[str], *, unbeaten: bool) -> Verdict:
    """Judge by the baselines: ahead of all, or behind one."""
    if all(standing == "ahead" for standing in against):
        return "mixed" if unbeaten else "better"
    return "worse" if "behind" in against else "unclear"


def outcome(metrics: Mapping[str, Any], entry: Mapping[str, Any]) -> Outcome | None:
    """Return the outcome of a comparison; None where a score is unknown."""
    if entry["probability"] is None:
        return None
    if entry["p"] is None or min(entry["seeds"]) < seeds_needed(n_comparisons(metrics)):
        return "too few seeds"
    low, high = entry["ci95"]
    if entry["p_holm"] >= ALPHA or low <= 0.5 <= high:
        return "unclear"
    if low > 0.5:
        return "higher" if entry["difference"] > 0 else "mostly higher"
    return "lower" if entry["difference"] < 0 else "mostly lower"


def seeds_needed(comparisons: int) -> int:
    """Return the fewest seeds of each arm with which a difference can be shown, given the number of comparisons.

    The clearest difference between two arms of n seeds has the p-value 2 / C(2n, n). With five seeds, its interval of P
    still contains one half.

    >>> seeds_needed(7), seeds_needed(100)
    (6, 8)
    """
    n = LEAST_SEEDS
    while 2 / math.comb(2 * n, n) * comparisons >= ALPHA:
        n += 1
    return n


def _outcomes(metrics: Mapping[str, Any], arm: str, opponent: str) -> dict[str, Outcome]:
    results = {name: outcome(metrics, entry) for name, entry in metrics["comparisons"][arm][opponent].items()}
    return {name: result for name, result in results.items() if result is not None}


def _ahead(by_measure: Mapping[str, Outcome]) -> str:
    outcomes = set(by_measure.values())
    if any(result.startswith("mostly") for result in outcomes) or {"higher", "lower"} <= outcomes:
        return "both"
    return "ahead" if "higher" in outcomes else "behind" if "lower" in outcomes else "unclear"


def _first_sentence(arms: Arms, main: str, baseline: Sequence[str]) -> str:
    ours, taken = f"{main} {reached(arms[main])}", steps(arms[main]["env_steps"])
    budget = f"after {taken} steps" if arms[main]["env_steps"] else "without training"
    if not baseline:
        return f"{ours}, {budget}."
    (name,) = baseline
    if not arms[name]["env_steps"]:
        return f"{ours}, {budget}; {name} {reached(arms[name])}, without training."
    theirs, also_taken = f"{name} alone {reached(arms[name])}", steps(arms[name]["env_steps"])
    if arms[main]["env_steps"] == arms[name]["env_steps"]:
        return f"{ours}; {theirs}, after the same {also_taken} steps."
    return f"{ours}, {budget}; {theirs}, after {also_taken} steps."


def _by_measure(measure: str, outcomes: Mapping[str, Mapping[str, Outcome]]) -> str:
    """Describe the main arm's results against all opponents, by one measure."""
    words = {
        "higher": "it returned more than {}",
        "lower": "it returned less than {}",
        "mostly higher": "most of its seeds returned more than those of {}, but not on average",
        "mostly lower": "most of its seeds returned less than those of {}, but not on average",
        "unclear": "no difference from {} was shown",
        "too few seeds": "there are too few seeds to tell it from {}",
    }
    period = {"return": "In the end", "area": "While training (area under the learning curve)"}[measure]
    parts = []
    for result, sentence in words.items():
        named = [opponent for opponent, by_measure in outcomes.items() if by_measure.get(measure) == result]
        if named:
            parts.append(sentence.format(_listed(named)))
    return f"{period} {'; '.join(parts)}."


def _too_few(metrics: Mapping[str, Any], main: str) -> str:
    sentence = (
        f"There are too few seeds to tell whether feedback helped: {main} has {len(metrics['arms'][main]['seeds'])}"
    )
    if not (n := n_comparisons(metrics)):
        return f"{sentence}, and a difference between single seeds may be luck."
    need = f"need{'s' * (n == 1)}"
    return f"{sentence}, and {counted(n, 'comparison')} {need} at least {seeds_needed(n)} of each arm."


def _thresholds(arms: Arms, main: str, outcomes: Iterable[str]) -> list[str]:
    """Describe when the main arm and its opponents reached the threshold."""
    known = [arm for arm in (main, *outcomes) if arms[arm]["steps_to_threshold"]]
    if known[:1] != [main] or len(known) < 2:
        return []
    if not any(arms[arm]["steps_to_threshold"]["reached"] for arm in known):
        untested = {arm: entry["steps_to_threshold"] for arm, entry in arms.items() if arm not in known}
        got = [
            f"{arm} ({entry['reached']} of {entry['of']})"
            for arm, entry in untested.items()
            if entry and entry["reached"]
        ]
        return [f"None of them reached the threshold while training{f', unlike {_listed(got)}' if got else ''}."]
    took = ", ".join(f"{arm} {threshold(arms[arm]['steps_to_threshold'])}" for arm in known)
    return [f"Steps to the threshold (median, and seeds that got there): {took}."]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
