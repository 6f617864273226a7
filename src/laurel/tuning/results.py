"""The output of a search: the best parameters as a file, tables of trials, and figures."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import yaml

from laurel.data.json_file import write_json
from laurel.errors import DataError
from laurel.evaluation import plots
from laurel.evaluation.formats import counted
from laurel.params import Params, parse_params
from laurel.params.edit import edited
from laurel.params.file import read_value
from laurel.params.search import Sweep, value_of, with_values
from laurel.tuning import figures
from laurel.tuning.importance import MIN_TRIALS, Importance, importances
from laurel.tuning.objective import NAME
from laurel.tuning.trials import TRIALS, Trial, best, rounded_text, table, write_trials

BEST, CSV, IMPORTANCE, SPACE = "best.yaml", "trials.csv", "importance.json", "space.json"
MARK = "# laurel tune: "
SCORE = f"return ({NAME})"


def write_results(place: Path, sweep: Sweep, params: Params, text: str, trials: Sequence[Trial]) -> list[str]:
    """Write best.yaml, trials.csv, trials.json, space.json, importance.json and figures/; return the notes.

    Args:
        text: the params file, whose comments are kept.

    Raises:
        DataError: no trial has a score.
    """
    chosen = best(trials)
    weights = importances(sweep.space, trials)
    notes = _notes(sweep, params, trials, chosen, weights)
    (place / BEST).write_text(_best(params, text, trials, chosen, sweep), encoding="utf-8")
    write_trials(place / TRIALS, trials)
    _write_csv(place / CSV, sweep, trials)
    write_json(place / IMPORTANCE, {name: asdict(found) for name, found in weights.items()})
    write_json(place / SPACE, sweep.write()["space"])
    for name, figure in figures.draw(sweep.space, trials, weights, SCORE).items():
        plots.save(figure, place / "figures", name)
    return notes


def _best(params: Params, text: str, trials: Sequence[Trial], chosen: Trial, sweep: Sweep) -> str:
    """Return the params file with the best values; a comment on its first lines replaces that of an earlier search."""
    text = re.sub(rf"(?m)\A({re.escape(MARK)}.*\n)+", "", text)
    changed, wanted = edited(text, chosen.values), with_values(params, chosen.values)
    remark = [
        f"the best of {counted(len(trials), 'trial')} (trial {chosen.number}) for the arm {sweep.arm}, by the {NAME}.",
        f"Chosen on the seeds {', '.join(map(str, sweep.seeds))}, each trained for at least {sweep.steps:,} "
        "environment steps; to evaluate it on other seeds: laurel run",
    ]
    if parse_params(read_value(changed, BEST), BEST) != wanted:
        if parse_params(read_value(text, BEST), BEST) != params:
            raise DataError("params: the file has changed since it was read. Run the same command again.")
        changed = yaml.safe_dump(wanted.dump(), sort_keys=False, allow_unicode=True)
        remark.append("Comments are left out: the file has values in several places at once (YAML's aliases).")
    return "".join(f"{MARK}{line}\n" for line in remark) + changed


def _notes(
    sweep: Sweep, params: Params, trials: Sequence[Trial], chosen: Trial, weights: Mapping[str, Importance]
) -> list[str]:
    seeds = ", ".join(map(str, sweep.seeds))
    notes = []
    if len(trials) > 1:
        notes.append(
            f"The best of {len(trials)} trials on the seeds {seeds} is biased upwards: evaluate it on agent.seeds, "
            "which no trial has used."
        )
    if sweep.steps != params.agent.steps:
        notes.append(
            f"Trials were trained for at least {sweep.steps:,} environment steps, but agent.steps is "
            f"{params.agent.steps:,}: other values may be the best then."
        )
    if any(arm.trained and arm.name != sweep.arm for arm in params.arms):
        notes.append(
            f"The values were chosen for the arm {sweep.arm}; the other arms would use values not chosen for them."
        )
    if not any(dict(trial.values) == {name: value_of(params, name) for name in sweep.space} for trial in trials):
        notes.append(
            "The current values of the parameters were not tried: they are outside of the space, or library defaults."
        )
    if not weights:
        notes.append(f"Importance is left out: it needs at least {MIN_TRIALS} complete trials.")
    for name, searched in sweep.space.items():
        if searched.near_end(chosen.values[name]):
            notes.append(f"The best {name} lies near an end of its range: a wider range may contain better values.")
    failed = [trial for trial in trials if trial.state == "failed"]
    if failed:
        notes.append(f"{counted(len(failed), 'trial')} failed, e.g. trial {failed[0].number}: {failed[0].note}")
    return notes


def _write_csv(path: Path, sweep: Sweep, trials: Sequence[Trial]) -> None:
    names = list(sweep.space)
    scores = [f"score_seed_{seed}" for seed in sweep.seeds]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["trial", "state", "score", "last_return", *scores, *names, "note"])
        for trial in trials:
            of_seeds = trial.seed_scores or [""] * len(scores)
            values = [
                rounded_text(trial.values[name]) if isinstance(trial.values[name], list) else trial.values[name]
                for name in names
            ]
            writer.writerow([trial.number, trial.state, trial.score, trial.last_return, *of_seeds, *values, trial.note])


def summary(place: Path, sweep: Sweep, trials: Sequence[Trial], notes: Sequence[str]) -> str:
    """Summarise a search as text for a terminal."""
    states = Counter(trial.state for trial in trials)
    counts = ", ".join(f"{n} {state}" for state, n in states.items())
    head = f"{counted(len(trials), 'trial')} of the arm {sweep.arm} ({counts}); score: {NAME}"
    command = f"cp {place / BEST} params.yaml && laurel run"
    commands = f"best:     {place / BEST}\nfigures:  {place / 'figures'}\nevaluate: {command}"
    return "\n\n".join([head, table(trials, list(sweep.space)), "\n".join(notes), commands])
