"""compare: captions, and a grid of judges → a leaderboard. All judges judge the same pairs; the leaderboard has the
accuracy of each.

No other stage reads what it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pyarrow as pa

from laurel.data.captions import read_segments, read_vocabulary
from laurel.data.directory import Output, output_directory
from laurel.data.gold import GoldFile
from laurel.data.json_file import write_json
from laurel.data.lineage import read_inputs
from laurel.data.parquet import write_table
from laurel.data.usage import Usage
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError, DataError, LaurelError
from laurel.feedback.annotator import Judgement, judge, usage_of
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.annotators import make_annotator
from laurel.feedback.estimate_grid import forecast, in_table
from laurel.feedback.known_answers import Subject, by_gold, by_progress_of_segments
from laurel.feedback.leaderboard import Entry, Row, leaderboard, markdown, title
from laurel.feedback.references import task_of
from laurel.llm.budget import Budget
from laurel.params import Params
from laurel.params.grid import Cell, load_grid
from laurel.progress import progress
from laurel.seeding import derive_seed
from laurel.stages.estimate_annotate import NOTHING
from laurel.stages.pair_labelling import Meter
from laurel.tracking.tracker import Tracker

STAGE = "annotate-compare"


def run(params: Params, captions: Path, grid: Path, output: Path, gold: Path | None = None) -> str:
    """Compare judges; return the leaderboard as a table. All share the budget of the params.

    Args:
        params: sections seed, env, caption and annotate are used.
        grid: file with the judges; see `laurel.params.grid`.
        output: directory to write leaderboard.json, .parquet and .md, and judgements.parquet into.
        gold: a person's labels, of which those of uncertain pairs are left out; None: use the environment's
            hand-written progress.

    Raises:
        ParamsError: the grid is missing or not allowed.
        AnnotationError: no pair has a known answer, or every judge failed.
        DataError: the captions or the gold labels are missing, damaged or of another environment.
    """
    wanted, cells = load_grid(grid, params.annotate)
    used = params.dump("seed", "env", "caption", "annotate")
    inputs = {"captions": captions}
    read_inputs({k: used[k] for k in ("env", "caption")}, inputs)
    used["grid"] = wanted.model_dump(mode="json")
    with output_directory(output, stage=STAGE, params=used, inputs=inputs) as out:
        adapter = adapter_for(params.env, with_action=params.caption.with_action)
        subject, source = known_answers(params, captions, adapter, wanted.pairs, gold)
        texts = read_vocabulary(captions).texts
        entries = []
        budget = Budget(
            params.annotate.budget.model_copy(update={"on_limit": "stop"})
        )  # a judge with only some of the pairs cannot be compared
        meter = Meter(out)
        with progress(len(cells) * len(subject.pairs), "compare", "judgements") as advance:
            for cell in cells:
                meter.begin(out)
                entries.append(_judged(cell, params, texts, subject, budget, meter))
                advance(len(subject.pairs))
        if all(entry.failure is not None for entry in entries):
            raise AnnotationError(f"All {len(cells)} judges failed. The first: {entries[0].failure}")
        rows = leaderboard(entries, subject.first_is_better)
        heading = about(subject, source)
        out.notes += [*_notes(rows), *_notes_on_goals(cells, entries, subject)]
        out.counts = {"cells": len(cells), "failed": sum(row["failure"] is not None for row in rows)}
        out.counts["pairs"] = len(subject.pairs)
        write_json(out.path / "leaderboard.json", {"about": heading, "rows": rows})
        _write_tables(out, rows, entries, subject)
        text = "\n\n".join([heading, markdown(rows), *out.notes]) + "\n"
        (out.path / "leaderboard.md").write_text(text, encoding="utf-8")
        tracker = Tracker(dict(params), STAGE, inputs, out)
        with tracker.stage_run() as tracked:
            if tracked:
                tracked.log_metrics({key: float(value) for key, value in out.counts.items()})
                for row in rows:
                    child = tracker.child_run(tracked, title(row), _tags(row))
                    child.log_metrics({k: v for k, v in row.items() if isinstance(v, int | float)})
                    child.end()
                tracked.log_directory(out.path, "leaderboard")
    return text


def estimated(params: Params, captions: Path, grid: Path, gold: Path | None = None) -> str:
    """Return the estimated cost of `run`, which has the same arguments, as text; asks and writes nothing.

    Raises:
        ParamsError: the grid is missing or not allowed.
        AnnotationError: no pair has a known answer.
        DataError: the captions, the gold labels or a store of answers cannot be read.
    """
    wanted, cells = load_grid(grid, params.annotate)
    read_inputs(params.dump("env", "caption"), {"captions": captions})
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    subject, source = known_answers(params, captions, adapter, wanted.pairs, gold)
    expected = forecast(cells, adapter, subject.questions, params.annotate.budget)
    return "\n".join([f"{about(subject, source)}\n", in_table(expected), NOTHING]) + "\n"


def known_answers(
    params: Params, captions: Path, adapter: EnvAdapter, n: int, gold: Path | None
) -> tuple[Subject, str]:
    """Return the pairs for all judges, and the source of the known answers; arguments and errors as in `run`."""
    seed = derive_seed(params.seed, "compare")
    if gold is None:
        segments, texts = read_segments(captions), read_vocabulary(captions).texts
        subject = by_progress_of_segments(adapter, segments, texts, n, seed)
        return subject, f"the hand-written progress of {adapter.env_id}"
    if not gold.exists():
        raise DataError(f"{gold}: no such file. Label some pairs with `laurel annotate review`, or leave out --gold.")
    labels = GoldFile(gold, task_of(params.annotate, adapter))
    uncertain = sum(label.chosen == "uncertain" and label.answer is not None for label in labels.labels.values())
    remark = f" (without {uncertain} of pairs that were chosen as uncertain)" if uncertain else ""
    subject = by_gold(adapter, labels, n, np.random.default_rng(seed), representative=True)
    return subject, f"the gold labels in {gold}{remark}"


def about(subject: Subject, source: str) -> str:
    """Return a sentence on the subject of the comparison."""
    n = len(subject.pairs)
    return f"Judges of {subject.adapter.env_id} on {n} pair{'s' * (n != 1)}, by {source}."


def _judged(
    cell: Cell, params: Params, captions: Sequence[str], subject: Subject, budget: Budget, meter: Meter
) -> Entry:
    """Judge all pairs; a failure of this judge does not stop the others, which share its budget."""
    started = monotonic()
    named, kind = (cell.model, cell.prompt, cell.temperature), cell.annotate.annotator
    usage, simulated = Usage(), False
    try:
        annotator = make_annotator(
            cell.annotate, subject.adapter, derive_seed(params.seed, "annotate"), captions, budget=budget
        )
        simulated = annotator.simulated
        annotator.prepare(subject.questions)
        try:
            with meter.reading(annotator, budget):
                judgements: list[Judgement] = list(judge(annotator, subject.questions))
        finally:
            usage = usage_of(annotator)  # also what a failed judge was paid
    except LaurelError as error:
        return Entry(*named, simulated, usage=usage, failure=str(error), annotator=kind)
    if any(judgement.status == "unasked" for judgement in judgements):
        reached = f"The budget of {budget.reached}, which all judges share, does not suffice for all pairs."
        return Entry(*named, simulated, usage=usage, failure=reached, annotator=kind)
    return Entry(*named, simulated, judgements, usage, round(monotonic() - started, 2), annotator=kind)


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = []
    if any(row["simulated"] for row in rows):
        notes.append("Judges marked as simulated are not language models.")
    failed = [row for row in rows if row["failure"] is not None]
    if failed:
        notes.append("Judges that failed are left out of the comparison, not counted as wrong.")
    return notes + [f"{title(row)} failed: {' '.join(row['failure'].split())}" for row in failed]


def _notes_on_goals(cells: Sequence[Cell], entries: Sequence[Entry], subject: Subject) -> list[str]:
    """Return notes on judges that were asked about another goal than a person's labels are for."""
    judged = [cell for cell, entry in zip(cells, entries, strict=True) if entry.failure is None and subject.goal]
    goals = {cell.title: kind_of(cell.annotate).goal(subject.adapter) for cell in judged}
    return [
        f'{name} judged by the goal "{goal}", but the gold labels are for "{subject.goal}", so its figures say little.'
        for name, goal in goals.items()
        if goal != subject.goal
    ]


def _write_tables(out: Output, rows: Sequence[Row], entries: Sequence[Entry], subject: Subject) -> None:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    write_table(out.path / "leaderboard.parquet", pa.table({key: [row.get(key) for row in rows] for key in keys}))
    judged = list(_judgements(entries, subject))
    columns = {key: [row[key] for row in judged] for key in judged[0]}
    write_table(out.path / "judgements.parquet", pa.table(columns))


def _judgements(entries: Sequence[Entry], subject: Subject) -> Iterator[dict[str, Any]]:
    """Yield a row for each pair that a judge judged."""
    for entry in entries:
        for (pair, p_first), judgement in zip(subject.pairs, entry.judgements, strict=entry.failure is None):
            yield {
                "model": entry.model,
                "prompt": entry.prompt,
                "temperature": entry.temperature,
                "first": pair.first,
                "second": pair.second,
                "known": "first" if p_first else "second",
                "status": judgement.status,
                "p_first": judgement.p_first,
            }


def _tags(row: Row) -> dict[str, str]:
    shown = ("model", "prompt", "temperature", "annotator", "failure")
    tags = {key: str(row[key]) for key in shown if row[key] is not None}
    return {**tags, "simulated": str(row["simulated"]).lower()}
