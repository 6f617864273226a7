"""A suite of runs: each run is a separate project, and its results are added to one page.

Runs that are up to date are skipped, so that a stopped suite can be resumed. A run whose folder is on another machine
stays on the page, with its own date and machine, as long as its parameters are the same.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from laurel.data.directory import left_by_stopped
from laurel.data.json_file import digest_json, read_json, write_json
from laurel.data.manifest import read_manifest
from laurel.data.replacing import lock_of
from laurel.data.usage import UNPRICED, Spent, Usage, added, bounded
from laurel.data.written import prepare, written_whole
from laurel.errors import ParamsError, StageError, closest
from laurel.evaluation.formats import counted, markdown, share, steps
from laurel.evaluation.summary import METRICS, brief, legend, main_arm, markdown_table, read_metrics
from laurel.evaluation.verdict import headline
from laurel.feedback.leaderboard import plain
from laurel.llm.prices import in_words
from laurel.machine import machine
from laurel.params.suite import Suite, SuiteRun
from laurel.stages.pipeline import STAGES
from laurel.stages.project import REPORTS, run_project, up_to_date

NOT_RUN = "not run"
FAILED = "failed"
COSTS = ("steps", "seconds", "calls", "cost")
"""Columns beside those of the arms."""
COUNTS_ALL = "counts_all_calls"
"""Key of results that also count calls of models that act or hint; results of earlier versions lack it."""


def run_suite(
    suite: Suite, work: Path, output: Path, command: str, *, only: Collection[str] = (), report: Callable[[str], None]
) -> list[str]:
    """Run the runs of a suite that are not up to date, and write its page after each.

    Args:
        work: parent of the runs' folders.
        output: directory of NAME.json and NAME.md.
        command: the command line, for the page.
        only: names of runs; empty: all of them.
        report: called with a line for each run that begins or fails.

    Returns:
        The names of failed runs, and of those left out since another process is running them.

    Raises:
        ParamsError: there is no run of such a name.
        DataError: the directory cannot be written, or lies in a stage's output.
    """
    names = [run.name for run in suite.runs]
    unknown = next((name for name in only if name not in names), None)
    if unknown is not None:
        raise ParamsError(f'The suite has no run "{unknown}".{closest(unknown, names)} It has {", ".join(names)}.')
    prepare(output, output)
    failed: dict[str, str] = {}
    left: list[str] = []
    for number, run in enumerate(suite.runs, start=1):
        if only and run.name not in only:
            continue
        report(f"{run.name} ({number} of {len(names)})")
        lock = lock_of(work / run.name)
        lock.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(lock, blocking=False):
                run_project(written(run, work), work / run.name)
        except Timeout:
            left.append(run.name)
            report(f"{run.name}: another process is running it, so this one leaves it out.")
            continue
        except StageError as error:
            failed[run.name] = error.reason or str(error)
            report(f"{run.name}: {error}")
        with FileLock(lock_of(work)):  # other processes may add to the same page
            write_page(suite, work, output, command, failed=failed)
    return [*failed, *left]


def written(run: SuiteRun, work: Path) -> Path:
    """Write the params.yaml of a run into its folder, unless it exists; return the file."""
    file = work / run.name / "params.yaml"
    text = f"# {run.name}\n{yaml.safe_dump(dict(run.content), sort_keys=False)}"
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return file


def write_page(
    suite: Suite,
    work: Path,
    output: Path,
    command: str,
    *,
    failed: Mapping[str, str] | None = None,
    may_drop: bool = True,
) -> None:
    """Write the results of the runs so far: NAME.json for programs, NAME.md to read.

    Args:
        failed: run -> why it failed just now; why others failed before stays on the page until they are finished, or
            their parameters are others.
        may_drop: whether earlier results of runs whose parameters have changed since may be dropped.

    Raises:
        ParamsError: results would be dropped that may not be.
    """
    file = output / f"{suite.name}.json"
    previous = read_json(file) if file.exists() else {"runs": {}}
    previous_runs = previous["runs"]
    results = {
        run.name: result(run, work / run.name) or _earlier_result(run, previous_runs.get(run.name))
        for run in suite.runs
    }
    lost = [name for name in previous_runs if results.get(name) is None]
    if lost and not may_drop:
        subject = f"Run {lost[0]}" if len(lost) == 1 else f"Runs {', '.join(lost)}"
        raise ParamsError(
            f"{subject} of {file}: the results were made with other parameters, or the suite no longer has such a run. "
            f"They would be lost. Run the suite again (laurel benchmark FILE), or move the file to keep it."
        )
    unfinished = [run for run in suite.runs if results[run.name] is None]
    reasons = _reasons(unfinished, failed or {}, previous.get(FAILED, {}))
    for run in unfinished:
        if run.name in reasons and (used := _used_so_far(run, work / run.name)).get("calls"):
            reasons[run.name] |= _cost_of(used)
    record = {
        "title": suite.title,
        "command": command,
        "runs": {name: outcome for name, outcome in results.items() if outcome is not None},
        NOT_RUN: [name for name, outcome in results.items() if outcome is None],
        **({FAILED: reasons} if reasons else {}),
    }
    write_json(file, record)
    with written_whole(output / f"{suite.name}.md") as partial:
        partial.write_text(markdown_page(suite, record), encoding="utf-8")


def result(run: SuiteRun, folder: Path) -> dict[str, Any] | None:
    """Return a run's results and costs; None if a stage is not up to date."""
    if not all(up_to_date(stage, run.params, folder) for stage in STAGES):
        return None
    reports = folder / REPORTS
    manifests = {stage.name: read_manifest(folder / stage.output, stage.name) for stage in STAGES}
    evaluated = manifests[STAGES[-1].name]
    ended = evaluated["ended"] or _written(reports / METRICS, evaluated["machine"])
    usage = reduce(added, (manifest["usage"] for manifest in manifests.values()), Usage())
    return {
        "levels": dict(run.levels),
        "params": digest_json(run.content),
        "made": {
            "date": ended["date"],
            "version": evaluated["version"],
            "machine": {"cores": ended["cores"], **evaluated["machine"]},
        },
        "metrics": read_metrics(reports / METRICS),
        "seconds": {name: manifest["seconds"] for name, manifest in manifests.items()},
        **_cost_of(usage),
        COUNTS_ALL: all(manifest["usage_of_all"] for manifest in manifests.values()),
        "notes": [note for manifest in manifests.values() for note in manifest["notes"]],
    }


def _cost_of(usage: Usage) -> dict[str, Any]:
    """Return the entries of a run's record with what it asked language models."""
    unpriced = {UNPRICED: usage[UNPRICED]} if usage.get(UNPRICED) else {}
    return {"calls": usage.get("calls", 0), "cost": usage.get("cost_usd", 0.0), **unpriced}


def _used_so_far(run: SuiteRun, folder: Path) -> Usage:
    """Return the usage of a run's finished stages, and of the stage that was stopped."""
    usage = Usage()
    for stage in STAGES:
        place = folder / stage.output
        if not up_to_date(stage, run.params, folder):
            return reduce(added, (Spent(file).usage for file in left_by_stopped(place, "spent.json")), usage)
        usage = added(usage, read_manifest(place, stage.name)["usage"])
    return usage


def _written(file: Path, maker: Mapping[str, Any]) -> dict[str, Any]:
    """Return when a run ended that has no record of it, such as an earlier version's, and the cores if it ran here."""
    is_same_machine = machine()["cpu"] == maker.get("cpu")
    return {
        "date": date.fromtimestamp(file.stat().st_mtime).isoformat(),
        "cores": os.cpu_count() if is_same_machine else None,
    }


def _earlier_result(run: SuiteRun, earlier: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a run's result on the page so far, unless its parameters have changed."""
    if earlier is None or earlier.get("params") != digest_json(run.content):
        return None
    return {**earlier, "levels": dict(run.levels)}  # an axis may have got another name


def _reasons(
    runs: Sequence[SuiteRun], failed: Mapping[str, str], earlier: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """Return why each of these runs failed just now, or failed before with the same parameters."""
    reasons = {}
    for run in runs:
        params = digest_json(run.content)
        previous = earlier.get(run.name, {})
        if run.name in failed:
            reasons[run.name] = {"params": params, "reason": failed[run.name]}
        elif previous.get("params") == params:
            reasons[run.name] = dict(previous)
    return reasons


# -- the page -------------------------------------------------------------------------------------
def markdown_page(suite: Suite, record: Mapping[str, Any]) -> str:
    """Return the page: a table of all runs and arms, then each run by itself."""
    runs: Mapping[str, Any] = {run.name: record["runs"][run.name] for run in suite.runs if run.name in record["runs"]}
    places = list(dict.fromkeys(_place(run) for run in runs.values()))
    parts = [
        f"# {suite.title}",
        suite.about.strip(),
        f"`{record['command']}`{f', {places[0]}' if len(places) == 1 else ''}.",
        *([overview(suite, runs)] if runs else []),
        _unfinished(record),
        *(_run_section(name, run, _place(run) if len(places) > 1 else None) for name, run in runs.items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _unfinished(record: Mapping[str, Any]) -> str:
    """Name the runs without results, and say why those that failed did."""
    failed = record.get(FAILED, {})
    waiting = [name for name in record[NOT_RUN] if name not in failed]
    lines = [f"- {name} failed: {plain(entry['reason'])}{_paid_until(entry)}" for name, entry in failed.items()]
    lines += [f"- Not finished: {', '.join(waiting)}."] if waiting else []
    return "\n".join(lines)


def _paid_until(failed: Mapping[str, Any]) -> str:
    """Describe what a run asked language models before it failed; empty if nothing."""
    calls = failed.get("calls", 0)
    return f" It had made {counted(calls, 'model call')} until then, {_cost(failed)}." if calls else ""


def overview(suite: Suite, runs: Mapping[str, Any]) -> str:
    """Return the table of runs: the results of each arm, and the costs of the run."""
    arms = list(dict.fromkeys(arm for run in runs.values() for arm in run["metrics"]["order"]))
    axes = list(suite.runs[0].levels)
    rows = [
        [
            *(run["levels"][axis] for axis in axes),
            *(brief(run["metrics"]["arms"].get(arm)) for arm in arms),
            steps(max(arm["env_steps"] for arm in run["metrics"]["arms"].values())),
            f"{sum(_seconds(run).values()):,.0f}",
            f"{run['calls']:,}",
            _cost(run, why=False),
        ]
        for run in runs.values()
    ]
    counting_all = [name for name, run in runs.items() if run.get(COUNTS_ALL)]
    counted_calls = "those of all language models that are asked"
    if len(counting_all) < len(runs):
        exception = f", which are counted in {', '.join(counting_all)} alone" if counting_all else ""
        counted_calls = f"those of annotators, without models that act or hint{exception}"
    caption = (
        "Success rate on fresh episodes, or the return where an environment does not define success, and how many "
        "seeds solved the task. Steps are per agent; seconds are for the whole run, with all arms and seeds; calls and "
        f"their cost are {counted_calls}. Runs share the answers that are stored, so a run pays for what earlier ones "
        "did not ask."
    )
    return f"{markdown([*axes, *arms, *COSTS], rows)}\n\n{caption}"


def _seconds(run: Mapping[str, Any]) -> dict[str, float]:
    """Return the duration of each stage, as far as known."""
    return {stage.name: run["seconds"][stage.name] for stage in STAGES if run["seconds"][stage.name] is not None}


def _place(run: Mapping[str, Any]) -> str:
    origin = run["made"]
    host = origin["machine"]
    cores = "" if host["cores"] is None else f" with {counted(host['cores'], 'core')}"
    return f"{origin['date']}, {host.get('cpu', 'unknown CPU')}{cores}, Laurel {origin['version']}"


def _run_section(name: str, run: Mapping[str, Any], place: str | None) -> str:
    metrics = run["metrics"]
    known = _seconds(run)
    took = f"{sum(known.values()):,.0f} s in all ({', '.join(f'{stage} {s:,.0f}' for stage, s in known.items())})"
    lines: Sequence[str] = [
        f"## {name}",
        markdown_table(metrics),
        legend(metrics),
        "\n".join(f"- {sentence}" for sentence in headline(metrics).sentences),  # as numbers are written now
        f"Annotator of pairs: {_annotator(metrics)}. {_calls(run)}{took}.{f' Run: {place}.' if place else ''}",
        _answers(metrics),
        "\n".join(f"- {note}" for note in dict.fromkeys(run["notes"])),
    ]
    return "\n\n".join(line for line in lines if line)


def _calls(run: Mapping[str, Any]) -> str:
    """Describe the calls of all stages to language models."""
    calls, cost = run["calls"], _cost(run)
    by_whom = "" if run.get(COUNTS_ALL) else " of annotators"
    return f"{calls:,} model calls{by_whom} in all stages, {cost}. " if calls else ""


def _cost(run: Mapping[str, Any], *, why: bool = True) -> str:
    used: Usage = {"cost_usd": run["cost"], UNPRICED: run.get(UNPRICED)}
    return bounded("cost_usd", used, in_words(run["cost"]), note=why)


def _annotator(metrics: Mapping[str, Any]) -> str:
    """Name the judges and their agreement with hand-written progress, on the first label set of each."""
    annotation = metrics.get("annotation") or {}
    label_sets = annotation.get("label_sets_by", ())
    sets = Counter(entry["judge"] for entry in label_sets)
    judges = [entry for entry in label_sets if entry["label_set"] == 0] or [annotation]
    return "; ".join(_judge(judge, sets[judge.get("judge")]) for judge in judges)


def _judge(quality: Mapping[str, Any], sets: int) -> str:
    progress = quality.get("oracle") or {}
    agreement = progress.get("agreement") or {}
    named = quality.get("annotator") or "none"
    if agreement.get("value") is None:
        return named
    named += f" (the first of {sets} label sets)" if sets > 1 else ""
    right = round(agreement["value"] * agreement["of"])
    right_of_all = f"{right:,} of {agreement['of']:,} pairs that differ in it"
    neither = f", and has no preference in {progress['undecided']:,} more" if progress.get("undecided") else ""
    return f"{named}, which agrees with hand-written progress on {right_of_all}{neither}"


def _answers(metrics: Mapping[str, Any]) -> str:
    """Describe the accuracy of the answers behind each reward, on its first label set; not for rewards learned from
    pairs.
    """
    quality = metrics.get("reward") or {}
    main = main_arm(metrics)
    reward = next(iter(metrics["arms"].get(main, {}).get("rewards", ())), main)
    qualities = quality.get("by") or [{"reward": reward, **quality}]
    return "\n".join(
        f"- Reward {', by '.join(entry[key] for key in ('reward', 'judge') if entry.get(key))}: {measured}."
        for entry in qualities
        if entry.get("label_set", 0) == 0 and (measured := _quality(entry))
    )


def _quality(reward: Mapping[str, Any]) -> str | None:
    """Describe the accuracy of answers by the environment; each method has one of these measures."""
    if reward.get("accuracy"):
        right = f"{share(reward['accuracy'])} outcomes whose answer was not given are labelled right"
        answers = reward["outcomes"] - reward["unanswered"]
        return (
            f"{right}; of all {answers:,} outcomes with an answer, {round(reward['yes'] * answers):,} are labelled yes"
        )
    if reward.get("right_order"):
        return f"{share(reward['right_order'])} pairs of captions are in the order of hand-written progress"
    if reward.get("sensible") is not None:
        met = round(reward["sensible"] * reward["goals"])
        return f"{met:,} of {counted(reward['goals'], 'goal')} are met by a caption that is hand-written progress"
    return None
