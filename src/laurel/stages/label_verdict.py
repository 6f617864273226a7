"""Checks whether labels can be learned from; if not, explains why and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laurel.data.directory import Output
from laurel.data.json_file import write_json
from laurel.data.members import tally_members
from laurel.data.missing import FAILED, most_frequent, read_missing
from laurel.data.preferences import FAILURES
from laurel.data.sample import read_sample
from laurel.envs.base import EnvAdapter
from laurel.feedback.agreement import agreement, table
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.asker import AGAIN
from laurel.feedback.gates import MOST_BIAS, interval
from laurel.params.annotation import AnnotateParams
from laurel.seeding import derive_seed
from laurel.stages.label_quality import assess


def conclude(
    seed: int,
    annotate: AnnotateParams,
    adapter: EnvAdapter,
    captions: Path,
    statuses: Mapping[str, int],
    texts: Sequence[str],
    out: Output,
) -> list[str]:
    """Count and measure all labels; return sentences on why they cannot be learned from, if so.

    That is if a gate fails, too many pairs or answers are missing because the annotator failed, or no pair has a
    preference. The measurements are written beside the labels.

    Args:
        statuses: how many pairs have each status.
        texts: of the segments from which pairs were drawn.
        out: the output with the labels and the counts of a probe.
    """
    out.counts = {"pairs": sum(statuses.values()), "distinct_segments": len(texts), **statuses, **out.counts}
    out.counts |= _agreement(seed, annotate, out)
    quality, refusals = assess(seed, annotate, adapter, captions, texts, out)
    refusals += _failures(annotate, statuses, quality, out)
    return refusals or _nothing_to_learn(annotate, statuses, quality, out)


def _failures(
    annotate: AnnotateParams, statuses: Mapping[str, int], quality: Mapping[str, Any], out: Output
) -> list[str]:
    """Check whether the annotator failed too often, counted by pairs and by single answers."""
    pairs, limit = sum(statuses.values()), annotate.max_failure_rate
    failed = sum(statuses[status] for status in FAILURES)
    unusable = quality.get("unusable_rate", {"value": 0.0, "of": 0})
    if not pairs or (failed <= limit * pairs and unusable["value"] <= limit):
        return []
    reasons = {
        "api_failed": "had no answer",
        "parse_failed": f"had no readable answer{_unread(out)}",
        "incomplete": "had too few answers, such as in only one of the two orders",
    }
    causes = [f"{statuses[status]} {reason}" for status, reason in reasons.items() if statuses[status]]
    listed = f": {', '.join(causes)}" if causes else ""
    failures = [f"{failed / pairs:.1%} of {pairs} pairs have no label because the annotator failed{listed}"]
    if unusable["of"]:
        share = f"{unusable['value']:.1%} of {unusable['of']:,}"
        example = "" if statuses["parse_failed"] else _unread(out)
        failures.append(f"{share} answers are missing or could not be read{example}")
    return [f"{', and '.join(failures)}; at most {limit:.1%} are allowed (annotate.max_failure_rate).{_why(out)}"]


def _nothing_to_learn(
    annotate: AnnotateParams, statuses: Mapping[str, int], quality: Mapping[str, Any], out: Output
) -> list[str]:
    """Check whether no pair has a preference, with possible reasons and remedies for the annotator in use."""
    pairs = sum(statuses.values())
    if pairs == 0:
        return [f"No pair was judged. {' '.join(out.notes)} Raise the limit (annotate.budget)."]
    if statuses["ok"]:
        return []
    advice, bias = kind_of(annotate).advice, quality.get("position_bias")
    counts = ", ".join(
        f"{statuses[status]} {words}"
        for status, words in (("tie", "ties"), ("abstain", "abstained"), ("incomplete", "answered in part"))
        if statuses[status] or status != "incomplete"
    )
    cause, remedy = "", f"Try {advice.ties}." if statuses["tie"] else f"Try {advice.asking}."
    if bias is not None and abs(bias["value"] - 0.5) > MOST_BIAS:
        cause = (
            f"{bias['value']:.1%} of decided answers preferred the text shown first ({interval(bias)}): its answers "
            f"depend on the order instead of the texts. "
        )
        remedy = f"Try {advice.asking}."
    return [f"{cause}None of {pairs} pairs has a preference ({counts}): there is nothing to learn. {remedy}"]


def _why(out: Output) -> str:
    """Describe why answers are missing, if known, and what to do where there was no answer."""
    missing = read_missing(out.path)
    if not missing:
        return ""
    advice = f" {AGAIN}" if any(entry.verdict == FAILED for entry in missing) else ""
    return f" Reasons: {most_frequent(missing).rstrip('.')}.{advice}"


def _unread(out: Output) -> str:
    """Quote an answer that could not be read, if there was one."""
    answers = (answer for pair in read_sample(out.path) for answer in pair["answers"])
    unread = next((answer["answer"] for answer in answers if answer["verdict"] == "unread" and answer["answer"]), "")
    return f", such as {' '.join(unread.split())[:200]!a}" if unread else ""


def _agreement(seed: int, annotate: AnnotateParams, out: Output) -> dict[str, float]:
    """Write the agreement of an ensemble's members, and add notes on failed members; return kappa as counts."""
    tally = tally_members(out.path)
    if tally is None:
        return {}
    measured = agreement(tally.patterns, derive_seed(seed, "agreement"))
    members = [{"name": n, "statuses": s} for n, s in zip(tally.names, tally.statuses, strict=True)]
    write_json(out.path / "agreement.json", {"members": members, **measured})
    out.notes.append(f"Members of the ensemble agree: {table(tally.names, measured).splitlines()[0]}.")
    for name, statuses in zip(tally.names, tally.statuses, strict=True):
        failed = sum(statuses[status] for status in FAILURES) / max(sum(statuses.values()), 1)
        if failed > annotate.max_failure_rate:
            out.notes.append(f"{failed:.0%} of the pairs have no vote of {name}, because it failed.")
    kappa = measured["kappa"]
    edges = zip(("kappa_low", "kappa_high"), kappa["ci95"] or (), strict=False)
    return {**({} if kappa["value"] is None else {"kappa": kappa["value"]}), **dict(edges)}
