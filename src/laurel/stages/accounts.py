"""Usage of language models during training and evaluation of agents, for the metrics and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from laurel.data.asked import ASKED
from laurel.data.directory import Output
from laurel.data.json_file import read_json
from laurel.data.simulated import simulated_labels_of
from laurel.data.usage import ASKER, UsageNote, added, by_asker, of_all, resumed_usage, with_stopped
from laurel.evaluation.formats import counted
from laurel.evaluation.play import SCORING, Asking, Played, account_of, usage_note
from laurel.rewards.online_artefact import CONFIG, read_labels, read_rows
from laurel.rewards.stored import OWN

_SHARES = ("parse_rate", "position_bias", "answer_abstain_rate")
"""Figures of `laurel.feedback.quality` whose means an account has."""


def _share(quality: dict[str, Any], name: str) -> float | None:
    return quality[name]["value"] if name in quality else None


def annotated(agents: Iterable[Played]) -> dict[str, dict[str, Any]]:
    """Return mean statistics of questions and labels for each arm with a reward learned during training.

    Several such rewards of an arm are summed.

    Raises:
        DataError: a file of an agent's own reward is damaged.
    """
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for arm, _, place in agents:
        for folder in sorted((place / OWN).glob("*")) if place else ():
            config, labels, rows = read_json(folder / CONFIG), read_labels(folder), read_rows(folder)
            lags = [row["step"] - row["asked"] for row in labels]
            by_arm.setdefault(arm.name, []).append(
                {
                    "judge": config.get("judge", "labels of another run"),
                    "simulated": bool(config.get("simulated")),
                    "questions": float(config["questions"]),
                    "labels": float(config["labels"]),
                    "distinct": {(row["first"], row["second"]) for row in labels if row["p"] is not None},
                    "dropped": float(rows[-1]["dropped"]) if rows else 0.0,
                    "coverage": config.get("coverage"),  # agents trained by an earlier version lack it
                    "lag": float(np.mean(lags)) if lags else None,
                    "late": bool(config.get("late")),
                    "warnings": config.get("warnings", []),
                    **{name: _share(config.get("quality", {}), name) for name in _SHARES},
                }
            )
    return {name: _together(accounts) for name, accounts in by_arm.items()}


def _together(accounts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over agents, and the number of distinct questions about which they have labels."""

    def mean(key: str) -> float | None:
        known = [account[key] for account in accounts if account[key] is not None]
        return sum(known) / len(known) if known else None

    warned = Counter(warning for account in accounts for warning in account["warnings"])
    means = {key: mean(key) for key in ("questions", "labels", "dropped", "coverage", "lag", *_SHARES)}
    return {
        "judge": accounts[0]["judge"],
        "simulated": any(account["simulated"] for account in accounts),
        **means,
        "distinct_labels": len(set().union(*(account["distinct"] for account in accounts))),
        "warnings": [{"warning": text, "agents": agents} for text, agents in warned.items()],
        "late_agents": sum(account["late"] for account in accounts),
    }


def note_annotated(accounts: dict[str, dict[str, Any]], out: Output) -> None:
    """Add notes on rewards that were learned during training."""
    for name, account in accounts.items():
        if account["simulated"]:
            out.notes.append(simulated_labels_of(name, account["judge"]))
        for issue in account["warnings"]:
            out.notes.append(
                f"{counted(issue['agents'], 'agent')} of the arm {name}, annotated during training: {issue['warning']}"
            )
        if account["late_agents"]:
            count = counted(account["late_agents"], "agent")
            out.notes.append(
                f"In {count} of the arm {name}, training continued without late answers, so the run can be reproduced "
                "only from their logs of labels (rewards.NAME.replay)."
            )
        if not account["labels"]:
            out.notes.append(f"The arm {name} got no label during training, so captions had no reward.")


@contextmanager
def noting(note: UsageNote, out: Output) -> Iterator[Asking]:
    """Yield what notes the usage of language models in the block, by actors and rewards that are added to it.

    Their usage is added to that of the output, with that of stopped runs.
    """
    with Asking(note) as asking:
        yield asking
    out.usage = added(out.usage, of_all([note.read()]))


def asked(agents: Iterable[Played], tables: Path, out: Output) -> dict[str, dict[str, Any]]:
    """Return the usage of each arm whose actor asks a language model, and add notes on it."""
    by_arm: dict[str, dict[str, Any]] = {}
    for arm, seed, _ in agents:
        table = tables / f"{arm.name}-{seed}.parquet"
        file, of_stopped = account_of(table), usage_note(table).read()
        account = read_json(file) if file.exists() else {}
        scoring = account.pop(SCORING, [])
        out.asked += account.pop(ASKED, [])
        usage = resumed_usage(of_stopped, by_asker([account, *scoring]))
        out.usage = added(out.usage, of_all([usage]))
        account = with_stopped(account, usage)
        account.pop(ASKER, None)
        if account:  # else only the reward that scores episodes asks
            sums = by_arm.setdefault(arm.name, {})
            for key, value in account.items():
                number = isinstance(value, int | float) and isinstance(sums.get(key, 0), int | float)
                sums[key] = sums.get(key, 0) + value if number else value
    for name, sums in by_arm.items():
        if sums.get("states") is not None:  # another package's actor may count calls alone
            out.notes.append(_readable(name, sums))
        if "answers" in sums:
            sums["tokens_per_answer"] = (sums.get("tokens") or 0) / max(sums["answers"] or 0, 1)
        if sums.get("calls") is not None:
            out.run_notes.append(
                f"The arm {name} took {counted(sums['calls'], 'call')} of {sums['model']} and "
                f"{counted(sums.get('cached') or 0, 'answer')} from the store."
            )
    kept = (
        "model",
        "states",
        "answers",
        "unread",
        "parse_rate",
        "tokens_per_answer",
    )  # a repeated run with a full store gives the same
    return {name: {key: sums[key] for key in kept if key in sums} for name, sums in by_arm.items()}


def _readable(name: str, sums: dict[str, Any]) -> str:
    """Return the note on an arm whose actor asked about states; add its share of readable answers to the sums."""
    states, unread = sums["states"], sums.get("unread") or 0
    answers = states if sums.get("answers") is None else sums["answers"]  # several per state where actors sample again
    sums["parse_rate"] = 1 - unread / max(answers, 1)
    readable = f"of {'them had an answer that' if answers == states else f'its {answers:,} answers'} could be read"
    return (
        f"The arm {name} asked {sums['model']} about {states:,} states (distinct ones of each of its agents), and "
        f"{sums['parse_rate']:.1%} {readable}{'; in the others all choices were equally likely' if unread else ''}."
    )
