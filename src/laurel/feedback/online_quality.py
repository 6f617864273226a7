"""Quality gates on answers that come while agents are trained: the same figures and limits as before training.

An agent's own answers are checked when it has FIRST_LOOK of them, and whenever their number has doubled since: a gate
that is checked after every answer would eventually stop every run by chance.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from laurel.data.preferences import Pairs, Preferences
from laurel.data.verdicts import VERDICTS, Verdicts
from laurel.envs.base import EnvAdapter
from laurel.errors import RefusedLabelsError
from laurel.feedback.annotator import Annotator, Answer, Judgement
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.gates import Checked, check_gates, check_success
from laurel.feedback.quality import measure
from laurel.feedback.references import oracle_sides
from laurel.feedback.success import SUCCESS, ask_success, has_other_goal, success_questions
from laurel.params.annotation import AnnotateParams
from laurel.seeding import derive_seed

FIRST_LOOK = 64
"""Number of answers at which the gates are checked for the first time."""
PROMPT = "annotate.language_model.prompt"
"""The parameter with the prompt of questions about pairs, as `laurel.feedback.annotator_kind.Advice` names it."""
_OF_CAPTIONS = ("answers", "failure_rate", "unusable_rate", "parse_rate", "answer_abstain_rate")
"""Figures that apply to answers about single captions, which have no order and cannot contradict each other."""
_AS_OF_PAIRS = {"yes": "first", "no": "second", "unclear": "tie"}


def packed(answers: Sequence[Answer[Any]]) -> str:
    """Encode single answers as text for the log of labels: variant and verdict of each; empty if none are kept."""
    return json.dumps([[answer.variant, answer.verdict] for answer in answers]) if answers else ""


def joined(answers: Iterable[str]) -> str:
    """Join results of `packed`."""
    answers_of_all = [answer for text in answers if text for answer in json.loads(text)]
    return json.dumps(answers_of_all) if answers_of_all else ""


def measured(labels: Sequence[Mapping[str, Any]], adapter: EnvAdapter, seed: int) -> dict[str, Any]:
    """Measure labels, rows of the log of an agent, as `laurel.feedback.quality.measure` does.

    Args:
        adapter: the environment's, whose hand-written progress labels of pairs are compared with.
        seed: for what is sampled if there is too much to measure.
    """
    ids: dict[str, int] = {}
    first, second = (
        np.array([ids.setdefault(row[side], len(ids)) for row in labels], dtype=np.int64)
        for side in ("first", "second")
    )
    pairs = Pairs(first, second, "online", seed)
    judged = [Judgement(row["status"], row["p"], swap_consistent=row["swap_consistent"]) for row in labels]
    verdicts = _verdicts([json.loads(row["answers"] or "[]") for row in labels])
    texts = list(ids)
    of_pairs = any(row["second"] for row in labels)
    sides = oracle_sides(pairs, texts, adapter, texts) if of_pairs else np.full(len(pairs), np.nan)
    known = {} if np.isnan(sides).all() else {"oracle": sides}
    measures = measure(pairs, Preferences.of(judged, ""), verdicts if len(verdicts) else None, known, seed)
    return measures if of_pairs else {name: measures[name] for name in _OF_CAPTIONS if name in measures}


def _verdicts(answers: Sequence[Sequence[tuple[int, str]]]) -> Verdicts:
    rows = [
        (i, variant, _AS_OF_PAIRS.get(verdict, verdict))
        for i, pairs_of_label in enumerate(answers)
        for variant, verdict in pairs_of_label
    ]
    return Verdicts(
        pair=np.array([i for i, _, _ in rows], dtype=np.int64),
        swapped=np.array([bool(variant) for _, variant, _ in rows], dtype=np.bool_),
        verdict=np.array([VERDICTS.index(verdict) for _, _, verdict in rows], dtype=np.int64),
        p_first=np.full(len(rows), np.nan),
        by=np.zeros(len(rows), dtype=np.int64),
    )


def check_labels(annotate: AnnotateParams, quality: Mapping[str, Any], prompt: str = PROMPT) -> Checked:
    """Check measured quality against the gates, except those that need a person's labels.

    Args:
        prompt: the parameter with the prompt of the questions, for remedies.
    """
    advice = kind_of(annotate).advice
    advice = replace(advice, asking=advice.asking.replace(PROMPT, prompt))
    unknown = ["min_gold_pairs", *(["min_agreement"] if "oracle" not in quality else [])]
    gates = annotate.gates.model_copy(update=dict.fromkeys(unknown))
    checked = check_gates(gates, quality, advice)
    for name in unknown:
        if getattr(annotate.gates, name) is not None:
            checked.notes.append(
                f"annotate.gates.{name} was not checked: answers that come while agents are trained are not compared "
                "with a person's."
            )
    return checked


def require_success_preferred(
    annotate: AnnotateParams, annotator: Annotator, adapter: EnvAdapter, seed: int
) -> dict[str, Any]:
    """Ask a judge whether success at the task is better than another outcome, before agents ask it anything.

    Args:
        annotate: the judge's: how many questions, and the gate.

    Returns:
        The result of `laurel.feedback.success.ask_success`, and warnings; empty if there is no such question.

    Raises:
        RefusedLabelsError: it prefers other captions.
    """
    if not annotate.probe.success_questions or has_other_goal(annotate, adapter):
        return {}
    listed = [text for text in map(adapter.describe, adapter.events()) if text]
    questions = success_questions(listed, adapter, annotate.probe.success_questions, derive_seed(seed, "success"))
    if not questions:
        return {}
    answers = ask_success(annotator, questions)
    checked = check_success(annotate.gates, answers, kind_of(annotate).advice)
    if checked.refusals:
        raise RefusedLabelsError(f"The online judge: {' '.join(checked.refusals)}")
    return {SUCCESS: answers, "warnings": checked.warnings}
