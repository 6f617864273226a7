"""The report of a run and the page beside it, from the results of evaluate."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from laurel import __version__
from laurel.data.directory import Output
from laurel.data.lineage import PRODUCERS
from laurel.data.manifest import RUN_PAGE
from laurel.data.preferences import Pairs
from laurel.envs.base import EnvAdapter
from laurel.evaluation import plots
from laurel.evaluation.hacking import Hacked
from laurel.evaluation.report import ReportContent, render
from laurel.evaluation.run_page import RunFacts, render_run
from laurel.evaluation.win_rates import examples
from laurel.feedback.references import references
from laurel.machine import machine, today
from laurel.params import EnvParams, Params
from laurel.params.annotation import AnnotateParams
from laurel.params.arms import judges_of
from laurel.params.fields import dumped
from laurel.params.stage_sections import TrainingSections, arms_of
from laurel.rewards.arms import used_label_sets
from laurel.rewards.method import PayTable, RewardContext
from laurel.rewards.stored import StoredRewards
from laurel.stages.films import Films
from laurel.stages.label_quality import gold_of
from laurel.tracking.revision import commit
from laurel.training.engines import Engine, engine_of

FIGURES = "figures"
"""Folder of the figures."""
SHOWN = tuple(name for name in Params.model_fields if name != "tracking")
"""Sections of params that the report shows, in the order of params.yaml."""
PACKAGES = ("torch", "transformers", "gymnasium", "minigrid", "envpool", "mlflow", "dvc", "numpy", "rliable")
"""Packages whose versions the report lists."""


def with_references(
    annotate: AnnotateParams, adapter: EnvAdapter, sample: list[dict[str, Any]], captions: Collection[str]
) -> list[dict[str, Any]]:
    """Add to each pair of the sample its gold label or the environment's progress, if known."""
    if not sample:
        return []
    texts = [pair[side] for pair in sample for side in ("first", "second")]
    place = {text: texts.index(text) for text in texts}
    first, second = (np.array([place[pair[side]] for pair in sample]) for side in ("first", "second"))
    known = references(Pairs(first, second, "sample", 0), texts, adapter, gold_of(annotate, adapter), captions)
    return [
        {**pair, "references": {name: float(side[i]) for name, side in known.items() if not np.isnan(side[i])}}
        for i, pair in enumerate(sample)
    ]


def _provenance() -> list[str]:
    """Return the version, commit and machine that made this: the same for equal runs."""
    host, revision = machine(), commit()
    hardware = ", ".join(host[key] for key in ("cpu", "architecture", "torch_isa") if key in host)
    return [f"Laurel {__version__}", *([revision] if revision else []), hardware, f"Python {host['python']}"]


def _dated_provenance() -> list[str]:
    """Return the date, `_provenance` and the number of cores."""
    return [today().isoformat(), *_provenance(), f"{os.cpu_count()} cores"]


@dataclass(frozen=True)
class Findings:
    """The results of evaluate, before drawing and writing."""

    sections: Mapping[str, Any]
    """Sections of params.yaml."""
    adapter: EnvAdapter
    stored: StoredRewards
    manifests: Mapping[str, dict[str, Any]]
    """Manifests of the inputs."""
    metrics: dict[str, Any]
    """The content of metrics.json."""
    results: pd.DataFrame
    """A row per evaluation episode."""
    curves: pd.DataFrame
    """A row per update of a training run."""
    rank: dict[str, Any] | None
    """How the learned reward ranks episodes."""
    table: PayTable | None
    """The learned reward of each caption; None if it has no table."""
    sample: list[dict[str, Any]]
    """Labelled pairs to show."""
    hacked: list[Hacked]
    """Arms whose agents earn more and do worse."""
    scored_by: str
    """Whose reward scores the episodes of all agents; empty if its arm's agents are paid the same."""


def drawn(findings: Findings, extra: Mapping[str, Figure], folder: Path) -> dict[str, str]:
    """Draw the figures into a folder; return each as SVG.

    Args:
        extra: further figures.
    """
    figures = plots.draw(
        findings.results,
        findings.curves,
        findings.metrics,
        calibration=findings.metrics["reward"].get("calibration", ()),
        draws=findings.sections["evaluate"].bootstrap,
        seed=findings.sections["seed"],
    )
    return {
        name: plots.svg(figure) if name.endswith(plots.LOG) else plots.save(figure, folder, name)
        for name, figure in {**figures, **extra}.items()
    }


def rendered(findings: Findings, figures: Mapping[str, str], films: Films, out: Output) -> str:
    """Return the report with the figures, each as SVG, and the films."""
    sections, metrics, table, vocabulary = findings.sections, findings.metrics, findings.table, None
    if films.missing:
        lack = "Some arms have no film" if films.animation else "There is no animation"
        out.notes.append(f"{lack}: {films.missing}")
    if table:
        columns = {"text": table.texts, "reward": table.rewards, "spread": table.spreads, "count": table.counts}
        vocabulary = pd.DataFrame({"id": range(len(table.texts)), **columns})
    context = RewardContext(*(sections[name] for name in ("env", "caption", "annotate", "rewards")))
    learned_from = used_label_sets(arms_of(cast("TrainingSections", sections)).values(), context)
    content = ReportContent(
        title=sections["env"].id,
        data={name: str(manifest["digest"]) for name, manifest in findings.manifests.items()},
        provenance=_provenance(),
        metrics=metrics,
        description=findings.adapter.description,
        figures=figures,
        notes=out.notes,
        programs=findings.stored.programs(),
        hacked=findings.hacked,
        written=examples(findings.results, list(metrics["texts"])) if "texts" in metrics else (),
        portraits=films.portraits,
        animation=films.animation,
        animation_of=films.animation_of,
        vocabulary=vocabulary,
        threshold=table.threshold if table else None,
        normalised=table.normalised if table else True,
        pays_for=table.of if table else "caption",
        learned_by=table.learned_by if table else "",
        scored_by=findings.scored_by,
        rank=findings.rank,
        annotation={"annotator": metrics["annotator"], **metrics["annotation"]}
        if judges_of(sections["arms"], sections["rewards"])
        else None,
        label_sets_used=min((len(numbers) for numbers in learned_from.values()), default=1),
        sample=findings.sample,
        reward=metrics["reward"],
        params=dumped({name: sections[name] for name in SHOWN if name in sections}),
        versions=_versions(engine_of(arm.agent_of(sections["agent"])) for arm in sections["arms"]),
    )
    return render(content)


def write_run_page(
    env: EnvParams, manifests: Mapping[str, dict[str, Any]], metrics: Mapping[str, Any], out: Output
) -> RunFacts:
    """Write the facts of only this run (seconds, costs, MLflow runs) beside the report."""
    took = {PRODUCERS[name]: manifest["seconds"] for name, manifest in manifests.items()} | {"evaluate": out.seconds}
    usage = {PRODUCERS[name]: manifest["usage"] for name, manifest in manifests.items()} | {"evaluate": out.usage}
    facts = RunFacts(
        title=env.id,
        provenance=_dated_provenance(),
        stage_seconds={stage: seconds for stage, seconds in took.items() if seconds is not None},
        usage={stage: used for stage, used in usage.items() if used},
        annotators=[str(member["annotator"]) for member in metrics["annotation"].get("by", ())],
        notes=[*(note for manifest in manifests.values() for note in manifest["run_notes"]), *out.run_notes],
    )
    (out.path / RUN_PAGE).write_text(render_run(facts), encoding="utf-8")
    return facts


def _versions(engines: Iterable[Engine]) -> dict[str, str]:
    """Return the versions of the packages that a result may depend on."""
    versions = {"python": platform.python_version(), "laurel": __version__}
    for package in dict.fromkeys((*PACKAGES, *(package for engine in engines for package in engine.packages))):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions
