"""The results of an experiment as tables for terminals and Markdown, from only metrics.json; imports nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from laurel.data.json_file import read_json
from laurel.data.simulated import on_simulated
from laurel.envs.base import PROGRESSION
from laurel.errors import DataError
from laurel.evaluation.arms import arms_of, draws_tasks, main_of
from laurel.evaluation.formats import (
    NONE,
    Table,
    aligned,
    counted,
    in_scale,
    interval,
    markdown,
    number,
    p_value,
    share,
    steps,
)

METRICS, RESULTS, CURVES, REPORT = "metrics.json", "results.parquet", "curves.csv", "report.html"
"""Files of a report."""
SCHEMA = 3
"""Version of the form of metrics.json. 1 (not named in the file) had bootstrap intervals of IQMs; 2 had no roles."""

MEASURES = {"return": "in the end", "area": "while training"}
"""The measures that arms are compared by: the return on fresh episodes, and the area under the learning curve."""

FURTHER = "further."
"""Prefix of an environment's further measures in the rows of evaluation episodes."""
SUCCESS_IN = "success in "
"""How the further measure of one of several tasks begins."""
AREA = "return while training"
"""Head of the column of the area under the learning curve."""

Arms = Mapping[str, Mapping[str, Any]]


def read_metrics(file: Path) -> dict[str, Any]:
    """Read metrics.json.

    Raises:
        DataError: it is missing or damaged, of another form, or not that of a report.
    """
    metrics = read_json(file)
    if not isinstance(metrics, dict) or not isinstance(metrics.get("arms"), dict):
        raise DataError(f"{file}: does not hold the metrics of a report. Run laurel evaluate again.")
    if metrics.get("schema", 1) != SCHEMA:
        raise DataError(
            f"{file}: was written by another version of Laurel (schema {metrics.get('schema', 1)}, and this version "
            f"reads {SCHEMA}). Run laurel evaluate again."
        )
    return metrics


def main_arm(metrics: Mapping[str, Any]) -> str | None:
    """Return the name of the arm that the headline is about; None without a method."""
    main = main_of(arms_of(metrics))
    return main.name if main else None


def n_comparisons(metrics: Mapping[str, Any]) -> int:
    """Return how many p-values a run has; Holm's correction adjusts each of them for this number."""
    return sum(
        entry["p"] is not None
        for overs in metrics["comparisons"].values()
        for measures in overs.values()
        for entry in measures.values()
    )


def threshold(entry: Mapping[str, Any] | None) -> str:
    """Write the median steps to the threshold and how many seeds got there.

    >>> threshold({"median": 45_000.0, "reached": 4, "of": 5})
    '45k (4 of 5)'
    """
    if entry is None:
        return NONE
    if entry["reached"] == 0:
        return f"never (0 of {entry['of']})"
    return f"{_median(entry)} ({entry['reached']} of {entry['of']})"


def _threshold_interval(entry: Mapping[str, Any] | None) -> str:
    """Write the same with the interval of the median."""
    if entry is None or not entry["reached"] or not entry["ci95"]:
        return threshold(entry)
    low, high = (steps(bound) if bound is not None else "never" for bound in entry["ci95"])
    return f"{_median(entry)} [{low}, {high}] ({entry['reached']} of {entry['of']})"


def _median(entry: Mapping[str, Any]) -> str:
    return "never" if entry["median"] is None else steps(entry["median"])


def _solved(entry: Mapping[str, Any] | None) -> str:
    return f"{entry['seeds']} of {entry['of']} {interval(entry['ci95'])}".rstrip() if entry else NONE


def estimated(score: Mapping[str, Any] | None) -> str:
    """Write a mean with its interval."""
    if score is None:
        return NONE
    mean, *bounds = (in_scale(value, score) for value in (score["mean"], *(score["ci95"] or ())))
    return f"{mean} [{', '.join(bounds)}]" if bounds else mean


def brief(arm: Mapping[str, Any] | None) -> str:
    """Write an arm's success, or its return where success has no meaning, and how many seeds solved the task."""
    if arm is None:
        return NONE
    score = estimated(arm["success"] or arm["return"])
    return f"{score}, {arm['solved']['seeds']} of {arm['solved']['of']}" if arm["solved"] else score


def reached(arm: Mapping[str, Any]) -> str:
    """Say in words what an arm reached."""
    solved = arm["solved"]
    solving = f" and solved the task with {solved['seeds']} of {counted(solved['of'], 'seed')}" if solved else ""
    return f"returned {estimated(arm['return'])}{solving}"


# -- tables ---------------------------------------------------------------------------------------


def columns(metrics: Mapping[str, Any]) -> Table:
    """Return the table of arms; columns that no arm has are left out."""
    arms: Arms = metrics["arms"]
    shown: list[str] = metrics["order"]
    table_columns = {
        "arm": shown,
        "return": [estimated(arms[arm]["return"]) for arm in shown],
        "IQM": [in_scale(arms[arm]["return"]["iqm"], arms[arm]["return"]) for arm in shown],
        "success": [estimated(arms[arm]["success"]) for arm in shown],
        "solved seeds": [_solved(arms[arm]["solved"]) for arm in shown],
        AREA: [estimated(arms[arm]["area"]) for arm in shown],
        "steps to threshold": [_threshold_interval(arms[arm]["steps_to_threshold"]) for arm in shown],
        "seeds": [str(len(arms[arm]["seeds"])) for arm in shown],
        "env steps": [steps(arms[arm]["env_steps"]) for arm in shown],
    }
    kept = {head: cells for head, cells in table_columns.items() if set(cells) != {NONE} or head in ("arm", "return")}
    return list(kept), [list(row) for row in zip(*kept.values(), strict=True)]


def comparison_columns(metrics: Mapping[str, Any]) -> Table | None:
    """Return the table of comparisons; None without any."""
    heads = ["comparison", *(f"{figure} {stage}" for stage in MEASURES.values() for figure in ("P(higher)", "p"))]
    rows = []
    order: list[str] = metrics["order"]
    for arm in (name for name in order if name in metrics["comparisons"]):
        overs = metrics["comparisons"][arm]
        for opponent in (name for name in order if name in overs):
            row = [f"{arm} > {opponent}"]
            for measure in MEASURES:
                entry = overs[opponent].get(measure)
                row += [probability(entry), p_value(entry["p_holm"] if entry else None)]
            rows.append(row)
    return (heads, rows) if rows else None


def further_columns(metrics: Mapping[str, Any]) -> Table | None:
    """Return the table of the environment's further measures; None without any."""
    measures: Mapping[str, Arms] = metrics.get("further", {})
    rows = [[arm, *(_digits(arms.get(arm)) for arms in measures.values())] for arm in metrics["order"] if measures]
    return (["arm", *measures], rows) if rows else None


def kinds_of_further(metrics: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether there are further measures that are the success in a task, and others."""
    names = [*metrics.get("further", {})]
    by_task = [name for name in names if name.startswith(SUCCESS_IN)]
    return bool(by_task), len(names) > len(by_task)


def _digits(score: Mapping[str, Any] | None) -> str:
    """Write a mean with its interval in three digits, for measures that may be small."""
    if score is None:
        return NONE
    bounds = f" [{', '.join(f'{bound:.3g}' for bound in score['ci95'])}]" if score["ci95"] else ""
    return f"{score['mean']:.3g}{bounds}"


def path_columns(metrics: Mapping[str, Any]) -> Table | None:
    """Return the table of greedy paths from every start of a grid world; None elsewhere."""
    paths: Arms = metrics.get("paths", {})
    heads = [
        "arm",
        "seed",
        "starts",
        "reach the goal",
        "moves over the shortest",
        "before: reach it",
        "before: over it",
    ]
    rows = [
        [
            *(name, str(entry["seed"]), str(entry["starts"])),
            *(f"{entry['success']:.0%}", number(entry["over_shortest"])),
            *(f"{entry['success_before']:.0%}", number(entry["over_shortest_before"])),
        ]
        for name, entry in paths.items()
    ]
    return (heads, rows) if rows else None


def asked_columns(metrics: Mapping[str, Any]) -> Table | None:
    """Return the table of what arms that ask a language model asked it in evaluation; None without any."""
    heads = ["arm", "model", "states", "answers", "could be read", "tokens an answer"]
    rows = [
        [
            *(name, usage["model"]),
            *(NONE if usage.get(amount) is None else f"{usage[amount]:,}" for amount in ("states", "answers")),
            *(f"{usage['parse_rate']:.1%}" if "parse_rate" in usage else NONE, number(usage.get("tokens_per_answer"))),
        ]
        for name, usage in ((name, metrics["arms"][name].get("asked")) for name in metrics["order"])
        if usage
    ]
    return (heads, rows) if rows else None


def text_columns(metrics: Mapping[str, Any]) -> Table | None:
    """Return the table of language models that were trained, the strongest first; None without any."""
    texts: Arms = metrics.get("texts", {})
    if not texts:
        return None
    heads = ["arm", "wins over the base", "seeds of both", "Elo", "KL to the base", "words with the prompt"]
    shared, rows = seeds_of_both(metrics), []
    for name, entry in sorted(texts.items(), key=_strength, reverse=True):
        words = f"{entry['words']:.1f}"
        if name not in shared:
            rows.append([name, "the base", NONE, "0", "0", words])
            continue
        wins, elo = entry["wins"], entry["elo"]
        rows.append(
            [
                *(name, share(wins) if wins else NONE, str(shared[name])),
                "{:+z.0f} [{:+z.0f}, {:+z.0f}]".format(elo["value"], *elo["ci95"]) if elo else NONE,
                *(f"{entry['kl']:z.1f}", words),
            ]
        )
    return heads, rows


def _strength(named: tuple[str, Mapping[str, Any]]) -> float:
    elo = named[1]["elo"]
    return float(elo["value"]) if elo else -math.inf


def seeds_of_both(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Return for each language model that was trained how many seeds both it and the base have."""
    models, arms = metrics["texts"], metrics["arms"]
    base = next(name for name, entry in models.items() if "wins" not in entry)
    return {name: len({*arms[name]["seeds"]} & {*arms[base]["seeds"]}) for name in models if name != base}


def table(metrics: Mapping[str, Any], notes: Iterable[str] = ()) -> str:
    """Return arms and comparisons as aligned plain text; the first column to the left, numbers to the right.

    Args:
        notes: of the report, of which those on simulated work are included.
    """
    compared = comparison_columns(metrics)
    heads, rows = columns(metrics)
    roles = [metrics["arms"][row[0]]["role"] for row in rows]
    rows = [[arm, role, *numbers] for role, (arm, *numbers) in zip(roles, rows, strict=True)]
    tables = (compared, further_columns(metrics), path_columns(metrics), asked_columns(metrics), text_columns(metrics))
    parts = [
        aligned(([heads[0], "role", *heads[1:]], rows)),
        *(aligned(part) for part in tables if part),
        legend(metrics),
    ]
    if simulated := [note for note in on_simulated(notes) if note not in parts[-1]]:
        parts.append("\n".join(simulated))
    sentences = metrics.get("headline", {}).get("sentences", ())
    return "\n\n".join([*parts, *(["\n".join(f"- {sentence}" for sentence in sentences)] if sentences else [])])


def markdown_table(metrics: Mapping[str, Any]) -> str:
    """Return arms and comparisons as Markdown tables, the main arm in bold."""
    heads, rows = columns(metrics)
    main = main_arm(metrics)
    rows = [[f"**{cell}**" for cell in row] if row[0] == main else row for row in rows]
    tables = (comparison_columns(metrics), further_columns(metrics))
    return "\n\n".join([markdown(heads, rows), *(markdown(*part) for part in tables if part)])


def legend(metrics: Mapping[str, Any]) -> str:
    """Explain the numbers in the tables."""
    arms: Arms = metrics["arms"]
    heads, _ = columns(metrics)
    known = any(arm["area"] and arm["area"]["mean"] is not None for arm in arms.values())  # as `return_range` has it
    ends = "mean return of any agent, while training or in the end" if known else "return of any single episode"
    success = ", or with a success of 0 or 1" if any(arm["success"] for arm in arms.values()) else ""
    sentences = [
        "Means over seeds, with 95% intervals in brackets (none for a single seed), which allow for one more seed with "
        f"the lowest or the highest {ends}{success}; IQM: interquartile mean."
    ]
    if any(len(a["seeds"]) > 1 and a["return"]["mean"] is not None and not a["return"]["ci95"] for a in arms.values()):
        sentences.append(
            "Returns have no interval, since they are all the same: the spread of further seeds is unknown."
        )
    if any(arm["solved"] for arm in arms.values()):
        sentences.append(
            "Solved seeds: how many seeds solved the task, with Wilson's interval of their share, corrected for "
            "continuity."
        )
    if AREA in heads:
        sentences.append(
            "Return while training: the mean of the learning curve (the area under it) from the first 50 episodes on; "
            "a point is the mean of the last 50 to 100 episodes, or of fewer at the end of a short training."
        )
    if drawing := [name for name in metrics["order"] if draws_tasks(arms[name])]:
        sentences.append(
            f"While training, a curriculum chose the tasks of {', '.join(drawing)}: the return while training is over "
            "these tasks, and is not compared."
        )
    if any((arm["steps_to_threshold"] or {}).get("ci95") for arm in arms.values()):
        sentences.append(
            "The interval of the median steps to the threshold runs between two seeds' values and contains the median "
            "with a probability of at least 93%."
        )
    if comparison_columns(metrics):
        n = n_comparisons(metrics)
        tested = f"exact permutation test, with Holm's correction for {counted(n, 'comparison')}"
        sentences.append(
            "P(higher): probability that a seed of the first arm returns more than a seed of the second; p: "
            f"{tested if n else 'none, since a single seed of an arm cannot be tested'}."
        )
    by_task, highest = kinds_of_further(metrics)
    if by_task:
        sentences.append("Success in a task: the share of its evaluation episodes that solved it, averaged.")
    if highest:
        sentences.append(
            "Further measures: the highest value in an evaluation episode, averaged"
            f"{'; progression: that of BALROG (arXiv 2411.13543)' * (PROGRESSION in metrics['further'])}."
        )
    if metrics.get("texts"):
        shared = seeds_of_both(metrics)
        several = any(n > 1 for n in shared.values())
        single = [name for name, n in shared.items() if n == 1 and several]
        resampled = (
            "seeds, and allow for one more that loses or wins every episode"
            if several
            else "prompts, and say nothing about other agents"
        )
        of_one = (
            f"; for the wins of {', '.join(single)}, which share one seed with the base model, over prompts"
            if single
            else ""
        )
        sentences.append(
            "Wins: share of episodes in which the arm's text has a higher return than the base model's for the same "
            "prompt (ties count as half a win); Elo: by a Bradley-Terry model, with the base model at 0; KL: "
            "divergence from the base model at the end of training, in nats per completion; their intervals are over "
            f"{resampled}{of_one}."
        )
    for arm, flagged in metrics.get("hacking", {}).items():
        sentences.append(
            f"Possible reward hacking in {arm}: {len(flagged['seeds'])} of {flagged['agents']} agents were paid more "
            "while they did worse."
        )
    for name, judge in metrics.get("simulated", {}).items():
        sentences.append(f"The reward {name} is simulated: it was made by {judge}.")
    return " ".join(sentences)


def probability(entry: Mapping[str, Any] | None) -> str:
    """Write a probability with its interval."""
    return f"{number(entry['probability'])} {interval(entry['ci95'])}".rstrip() if entry else NONE
