"""Estimate the questions of the annotate stage and their cost, from only the captions; asks and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from laurel.data.captions import Segments, read_segments, read_vocabulary
from laurel.data.lineage import read_inputs
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Pair
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.estimate import Estimate, in_lines, limits, total_lines
from laurel.feedback.pairs import sample_pairs
from laurel.feedback.probe import has_probe, load_probe
from laurel.params import Params
from laurel.params.annotation import MAIN, AnnotateParams
from laurel.seeding import derive_seed
from laurel.stages.label_quality import questions_about_success
from laurel.stages.label_sets import label_sets

NOTHING = "Nothing was asked, and nothing was written."


def run(params: Params, captions: Path) -> str:
    """Return the estimated cost of `annotate.run` as text: all label sets of all judges that arms need.

    Args:
        params: sections seed, env, caption, annotate and arms are used.

    Raises:
        AnnotationError: a prompt does not fit its model.
        DataError: the captions or the store of answers cannot be read.
    """
    read_inputs(params.dump("seed", "env", "caption", "annotate"), {"captions": captions})
    segments, texts = read_segments(captions), read_vocabulary(captions).texts
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    judges = list(dict.fromkeys(label_set.judge for label_set in label_sets(params.annotate, params.judges)))
    if not judges:
        return f"No arm has a reward learned from preferences, so nothing is asked about pairs.\n\n{NOTHING}\n"
    sets = params.annotate.feedback_seeds
    blocks = _Blocks(adapter)
    for judge in judges:
        asking = params.annotate.of_judge(judge)
        known, notes = _known_answer_questions(params.seed, asking, adapter, texts, sets)
        questions = [*known * sets, *_drawn(params.seed, asking, segments, sets)]
        if sets > 1:
            notes = [f"The figures are totals over all {sets} label sets.", *notes]
        blocks.add(asking, questions, f"judge {judge}" if judges != [MAIN] else "", notes)
    return blocks.text(params.annotate)


def of_probe(params: Params) -> str:
    """Return the estimated cost of `laurel annotate probe` as text; errors as in `run`.

    Raises:
        AnnotationError: no probe is for the environment.
    """
    blocks = _Blocks(adapter_for(params.env, with_action=params.caption.with_action))
    blocks.add(params.annotate, load_probe(params.env.id).asked)
    return blocks.text(params.annotate)


def _drawn(seed: int, asking: AnnotateParams, segments: Segments, sets: int) -> list[Pair]:
    """Return the pairs of all label sets, as annotate draws them if its sampler does not depend on labels."""
    drawn = []
    for number in range(sets):
        rng = np.random.default_rng(derive_seed(seed, "annotate", *([str(number)] if number else [])))
        first, second = sample_pairs(segments.counts, asking.n_pairs, asking.drawn_by, rng)
        numbers = zip(first.tolist(), second.tolist(), strict=True)
        drawn += [Pair(segments.texts[a], segments.texts[b]) for a, b in numbers]
    return drawn


def _known_answer_questions(
    seed: int, asking: AnnotateParams, adapter: EnvAdapter, captions: Sequence[str], sets: int
) -> tuple[list[Pair], list[str]]:
    """Return a label set's questions with known answers, and notes on the estimate."""
    questions, notes = list[Pair](), []
    if asking.adaptive:
        notes.append(
            f"The sampler {asking.sampler} depends on labels: this estimate is for the same number of "
            f"uniformly drawn pairs."
        )
    if asking.stop.rule != "none":
        notes.append("This is for all pairs; annotate.stop may end annotation earlier.")
    suffix = " in each label set" * (sets > 1)
    if asking.probe.min_score is not None and has_probe(adapter.env_id):
        probe = load_probe(adapter.env_id).asked
        questions += probe
        notes.append(
            f"{len(probe)} of the pairs{suffix} belong to the probe, which comes first and asks in both orders."
        )
    success, why_not = questions_about_success(seed, asking, adapter, captions)
    if success:
        questions += [question.question for question in success]
        notes.append(
            f"{len(success)} of the pairs{suffix}, judged first, compare success at the task with another outcome."
        )
    return questions, [*notes, *([why_not] if why_not else [])]


class _Blocks:
    """The estimates of annotators that are asked one after the other, within one budget."""

    def __init__(self, adapter: EnvAdapter) -> None:
        self._adapter = adapter
        self._blocks: list[tuple[list[str], Estimate | str]] = []
        self._asked: dict[Path, set[str]] = {}

    def add(
        self, asking: AnnotateParams, questions: Sequence[Pair], title: str = "", notes: Sequence[str] = ()
    ) -> None:
        """Add a judge's voters; questions that an earlier one asks are answered by then."""
        members = len(asking.voters)
        for number, voter in enumerate(asking.voters):
            member = f"member {number + 1} of {members}" if members > 1 else ""
            heading = ", ".join(filter(None, [title, member]))
            asked = self._asked.setdefault(voter.language_model.store, set())
            kind = kind_of(voter)
            estimate = alone = kind.estimate(self._adapter, questions)
            if alone is not None and asked:
                estimate = kind.estimate(self._adapter, questions, asked)
            cost = (
                "works in this process: no calls, no tokens, no cost"
                if kind.estimates
                else "does not estimate its cost"
            )
            no_cost = f"{len(questions):,} pairs. The annotator {voter.annotator} {cost}.\n"
            lines = [*([heading] if heading else []), *(notes if number == 0 else [])]
            if alone is not None and estimate is not None:
                if shared := estimate.answered - alone.answered:
                    lines.append(f"{shared:,} of the questions are also counted above, so they count as answered here.")
                asked |= estimate.to_ask
            self._blocks.append((lines, estimate or no_cost))

    def text(self, asking: AnnotateParams) -> str:
        """Return all as text, with the limits of the budget that they share."""
        estimates = [block for _, block in self._blocks if isinstance(block, Estimate)]
        needs = sum((estimate.needs for estimate in estimates[1:]), estimates[0].needs) if estimates else None
        in_batches = any(estimate.in_batches and estimate.calls for estimate in estimates)
        if needs and in_batches:  # each round may take BATCH_MINUTES, and their number is not known
            needs = replace(needs, minutes=None)
        outcome = f"may be reached, and then: {asking.budget.on_limit}"
        reached = list(limits(asking.budget, needs, outcome)) if needs else []
        parts = []
        for notes, block in self._blocks:
            if isinstance(block, Estimate):
                block = in_lines(block, reached if len(estimates) == 1 else [])
            parts.append("\n".join([*notes, block]))
        if needs and len(estimates) > 1:
            price = ", at the price of batches where these are used" if in_batches else ""
            parts.append(f"in all{price}\n{total_lines(needs, reached)}")
        return "\n".join([*parts, NOTHING]) + "\n"
