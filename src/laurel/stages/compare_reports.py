"""Comparison of two reports: parameters that differ, arms, and exact tests between arms of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from laurel.console import printable
from laurel.data.manifest import checked_manifest
from laurel.data.simulated import on_simulated
from laurel.errors import DataError
from laurel.evaluation.arms import draws_tasks
from laurel.evaluation.comparison import compare as compared
from laurel.evaluation.comparison import holm
from laurel.evaluation.formats import NONE, Table, aligned, p_value
from laurel.evaluation.statistics import areas, seed_scores
from laurel.evaluation.summary import (
    CURVES,
    MEASURES,
    METRICS,
    REPORT,
    RESULTS,
    Arms,
    estimated,
    probability,
    read_metrics,
)
from laurel.params.fields import as_text
from laurel.stages.pipeline import STAGE
from laurel.tracking.tracker import flatten

ALIKE = (
    ("env.id", "environment"),
    ("env.kwargs", "arguments"),
    ("env.max_episode_steps", "limit of episodes"),
    ("evaluate.kwargs", "arguments in evaluation"),
)
"""Parameters that must be equal for returns to be comparable -> description."""
STEPS = "agent.steps"
STEMS = ("A", "B")


@dataclass(frozen=True)
class Report:
    """The output of `laurel evaluate`."""

    name: str
    """Name as given by the user."""
    path: Path
    manifest: Mapping[str, Any]
    metrics: Mapping[str, Any]
    results: pd.DataFrame
    curves: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> Report:
        """Read a report, or that of a project.

        Raises:
            DataError: it is missing, damaged or of another version.
        """
        project = folder / STAGE["evaluate"].output
        path = project if project.is_dir() else folder
        manifest = checked_manifest(path, "evaluate")
        metrics = read_metrics(path / METRICS)
        results = pd.read_parquet(path / RESULTS)
        # an arm may be called None or NA, which pandas reads as a missing value
        curves = pd.read_csv(path / CURVES, keep_default_na=False, na_values=[""])
        return cls(str(folder), path, manifest, metrics, results, curves)

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters that the result depends on; `arms` is a mapping by name."""
        params: Mapping[str, Any] = self.manifest["params"]
        return params


@dataclass(frozen=True)
class Comparison:
    """The comparison of two reports."""

    reports: tuple[Report, Report]
    params: Table
    """Parameters that differ."""
    arms: Table
    tests: int
    """Number of p-values, for which each is adjusted."""

    @property
    def notes(self) -> list[str]:
        """Notes on the tables."""
        notes = [f"{stem}: {report.name}, {_judge(report)}." for stem, report in zip(STEMS, self.reports, strict=True)]
        test = f"exact permutation test between arms of the same name, with Holm's correction for {self.tests}"
        test += " tests" if self.tests > 1 else " test"
        notes.append(
            "Means over seeds, with 95% intervals. P(B higher): probability that a seed of B returns more than a seed "
            f"of A; p: {test if self.tests else 'none, since no arm has several seeds in both reports'}."
        )
        notes += _other_steps(*(report.metrics["arms"] for report in self.reports))
        notes += _own_files(*(report.manifest.get("own_files", {}) for report in self.reports))
        versions = {report.manifest["version"] for report in self.reports}
        if len(versions) > 1:
            notes.append(f"The reports are of different versions of Laurel: {' and '.join(sorted(versions))}.")
        for stem, report in zip(STEMS, self.reports, strict=True):
            notes += [f"{stem}: {note}" for note in on_simulated(report.manifest["notes"])]
        return notes

    def text(self) -> str:
        """Return it for a terminal."""
        params = aligned(self.params) if self.params[1] else "The parameters are the same."
        return "\n\n".join([params, aligned(self.arms), *self.notes]) + "\n"

    def page(self) -> str:
        """Return it as one HTML document."""
        from jinja2 import Environment, PackageLoader, StrictUndefined

        environment = Environment(loader=PackageLoader("laurel.evaluation"), autoescape=True, undefined=StrictUndefined)
        links = [
            (stem, report.name, (report.path / REPORT).resolve().as_uri())
            for stem, report in zip(STEMS, self.reports, strict=True)
        ]
        return environment.get_template("compare.html.j2").render(comparison=self, links=links)


def compare(first: Path, second: Path) -> Comparison:
    """Compare two reports; the first is A, the second B.

    Raises:
        DataError: one is missing or damaged, or they are not comparable.
    """
    reports = Report.read(first), Report.read(second)
    _check_comparable(*reports)
    rows, tests = _arms(*reports)
    return Comparison(reports, _params(*reports), rows, tests)


def _check_comparable(a: Report, b: Report) -> None:
    before, after = flatten(a.params), flatten(b.params)
    trained = [max((arm["env_steps"] for arm in report.metrics["arms"].values()), default=0) for report in (a, b)]
    longer = () if trained[0] == trained[1] else ((STEPS, "environment steps of each training run"),)
    for key, meaning in (*ALIKE, *longer):  # trainings end with a whole update, so other steps may be as long
        # flatten keeps an empty mapping, but writes others key by key
        values = [
            {name.removeprefix(key): value for name, value in report.items() if f"{name}.".startswith(f"{key}.")}
            for report in (before, after)
        ]
        if values[0] != values[1] and not (key == "env.id" and _is_one_environment(before[key], after[key])):
            shown = [", ".join(f"{key}{name}: {as_text(value)}" for name, value in report.items()) for report in values]
            raise DataError(
                f"{a.name} and {b.name}: cannot be compared, because they differ in the {meaning}: {shown[0]} in the "
                f"first, {shown[1]} in the second. Compare runs of one environment and one number of steps."
            )


def _is_one_environment(first: str, second: str) -> bool:
    """Whether ids are the same but for the module, `module:id`, which only one of them names."""
    (first_module, _, bare), (second_module, _, other_bare) = first.rpartition(":"), second.rpartition(":")
    return bare == other_bare and not (first_module and second_module)


def _params(a: Report, b: Report) -> Table:
    before, after = _flat(a.params, b.params), _flat(b.params, a.params)
    keys = [key for key in dict.fromkeys([*before, *after]) if before.get(key, NONE) != after.get(key, NONE)]
    shown = [{key: printable(as_text(value)) for key, value in report.items()} for report in (before, after)]
    rows = [[key, *(report.get(key, NONE) for report in shown)] for key in sorted(keys)]
    return ["parameter", *STEMS], rows


def _flat(params: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted key -> value; of an arm that the other report lacks only the name."""
    arms = {name: arm if name in others["arms"] else name for name, arm in params["arms"].items()}
    return flatten({**params, "arms": arms})


def _arms(a: Report, b: Report) -> tuple[Table, int]:
    """Return the table of arms, and its number of tests."""
    names = list(dict.fromkeys([*a.metrics["order"], *b.metrics["order"]]))
    tests = {name: _tests(a, b, name) for name in names}
    entries = [entry for of_arm in tests.values() for entry in of_arm.values()]
    for entry, adjusted in zip(entries, holm([entry["p"] for entry in entries]), strict=True):
        entry["p_holm"] = adjusted
    heads = ["arm", *(f"{figure} {stem}" for figure in ("return", "success") for stem in STEMS)]
    heads += [f"{figure} {period}" for period in MEASURES.values() for figure in ("P(B higher)", "p")]
    rows = []
    for name in names:
        row = [name]
        for quantity in ("return", "success"):
            row += [estimated(report.metrics["arms"].get(name, {}).get(quantity)) for report in (a, b)]
        for measure in MEASURES:
            test = tests[name].get(measure)
            row += [probability(test), p_value(test["p_holm"] if test else None)]
        rows.append(row)
    return (heads, rows), sum(entry["p"] is not None for entry in entries)


def _tests(a: Report, b: Report, arm: str) -> dict[str, dict[str, Any]]:
    """Return measure -> how the seeds of B's arm compare with those of A's; empty if one has no such arm."""
    scores = [_scores(report, arm) for report in (b, a)]
    own_tasks = any(draws_tasks(report.metrics["arms"].get(arm, {})) for report in (a, b))
    return {
        measure: compared(scores[0][measure], scores[1][measure])
        for measure in scores[0]
        if measure in scores[1] and not (measure == "area" and own_tasks)
    }


def _scores(report: Report, arm: str) -> dict[str, Any]:
    """Return measure -> the score of each seed of an arm (S,)."""
    by_measure = {}
    for measure, frame in (("return", seed_scores(report.results)), ("area", areas(report.curves))):
        values = frame.loc[frame["arm"] == arm, measure].to_numpy(dtype="float64")
        if len(values):
            by_measure[measure] = values
    return by_measure


def _other_steps(a: Arms, b: Arms) -> list[str]:
    """Name the arms of both reports whose agents were trained for different numbers of steps."""
    steps = {name: (a[name]["env_steps"], b[name]["env_steps"]) for name in a if name in b}
    return [
        f"{name}: its agents were trained for {before:,} steps in A and {after:,} in B."
        for name, (before, after) in steps.items()
        if before != after
    ]


def _own_files(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """Name the user's own files, such as an environment's module, whose content differs."""
    differ = [file for file in sorted({*a, *b}) if a.get(file) != b.get(file)]
    if not differ:
        return []
    return [f"The reports were made with different content of {', '.join(map(printable, differ))}."]


def _judge(report: Report) -> str:
    annotator = report.metrics["annotator"]
    if not annotator:
        return "no labels"
    return f"{'labels' if report.metrics['annotation']['pairs'] else 'answers'} by {annotator}"
