"""Quality of the labels that the annotate stage made, and a sample of them to look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from laurel.console import tell
from laurel.data.captions import read_vocabulary
from laurel.data.directory import Output, output_directory
from laurel.data.gold import GoldFile, require_gold
from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import read_manifest
from laurel.data.members import read_votes
from laurel.data.missing import FAILED, Missing, gather, read_missing, unread_keys, write_missing
from laurel.data.preferences import read_annotator, read_labels
from laurel.data.quality import QUALITY
from laurel.data.sample import answers_of, candidates, draw, join_samples, write_sample
from laurel.data.verdicts import read_verdicts
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError, ParamsError, RefusedLabelsError
from laurel.feedback.annotator import Annotator
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.gates import REVIEW, Checked, check_gates, check_success
from laurel.feedback.quality import measure
from laurel.feedback.references import references, task_of
from laurel.feedback.success import SUCCESS, SuccessQuestion, ask_success, has_other_goal, success_questions
from laurel.feedback.unreadable import unreadable
from laurel.llm.responses import ResponseStore
from laurel.params.annotation import AnnotateParams
from laurel.seeding import derive_seed

SUCCESS_FILE = "success.json"
REFUSED = "annotate-refused"
"""Stage name in the manifest of refused labels, so that nothing is trained on them."""


@contextmanager
def setting_aside(output: Path, out: Output, params: Mapping[str, Any], inputs: Mapping[str, Path]) -> Iterator[None]:
    """Keep refused labels and their quality beside the output; remove those of an earlier run.

    Args:
        output: the regular output directory.

    Raises:
        RefusedLabelsError: as raised by the block, with the directory added.
    """
    place = output.with_name(f"{output.name}-refused")
    try:
        yield
    except RefusedLabelsError as error:
        with output_directory(place, stage=REFUSED, params=params, inputs=inputs) as aside:
            for file in out.path.iterdir():
                file.rename(aside.path / file.name)
            aside.counts, aside.usage, aside.mlflow_run_id = out.counts, out.usage, out.mlflow_run_id
            aside.started = out.started
            aside.notes += [*out.notes, *error.reasons.splitlines()]
        raise RefusedLabelsError(error.reasons, place) from None
    try:
        stale = read_manifest(place)["stage"] == REFUSED
    except DataError:
        return  # it is missing, or not Laurel's
    if stale:
        shutil.rmtree(place)


def gold_of(annotate: AnnotateParams, adapter: EnvAdapter) -> GoldFile | None:
    """Return the gold labels that params name; None if they name none.

    Raises:
        DataError: there is no such file, or it holds something else.
    """
    if annotate.gold is None:
        return None
    require_gold(annotate.gold)
    return GoldFile(annotate.gold, task_of(annotate, adapter))


def require_references(annotate: AnnotateParams, judges: Iterable[str]) -> None:
    """Refuse a gate that needs gold labels where params name none: all labels would be refused once they are paid for.

    Raises:
        ParamsError: a judge has such a gate.
    """
    for judge in map(annotate.of_judge, judges):
        if judge.gold is None and (least := judge.gates.min_gold_pairs) is not None:
            raise ParamsError(
                f"annotate.gates.min_gold_pairs is {least}, but annotate.gold names no file of gold labels, so all "
                f"labels would be refused. After laurel caption, label pairs with {REVIEW} and name the file as "
                "annotate.gold, or set the gate to null."
            )


def keep_sample(seed: int, annotate: AnnotateParams, texts: Sequence[str], out: Output, *, share: bool) -> None:
    """Write a sample of the labels with their raw answers from the store; a larger one for a share of the pairs."""
    seed = _seed(seed)
    pairs, preferences = read_labels(out.path)
    chosen = np.concatenate(candidates(pairs, preferences, seed)) if share else draw(pairs, preferences, seed)
    answers = answers_of(out.path, chosen)
    keys = {str(answer["response"]) for group in answers.values() for answer in group} - {""}
    write_sample(out.path, chosen, pairs, preferences, texts, answers, _replies(annotate, sorted(keys)))


def keep_missing(annotate: AnnotateParams, failures: Mapping[str, Mapping[str, int]], out: Output) -> None:
    """Write why answers are missing: the reported failures, and the reasons for unreadable answers.

    Args:
        failures: annotator -> reason -> number of missing answers.
    """
    missing = [Missing(name, FAILED, reason, n) for name, reasons in failures.items() for reason, n in reasons.items()]
    if annotate.keeps_responses:
        with ResponseStore(annotate.language_model.store) as store:
            missing += unreadable(unread_keys(out.path), store)
    write_missing(out.path, missing)


def join_missing(shards: Sequence[Path], out: Output) -> None:
    """Write the reasons for missing answers of all shares."""
    write_missing(out.path, gather(entry for shard in shards for entry in read_missing(shard)))


def join_success(shards: Sequence[Path], out: Output) -> None:
    """Keep the first share's answers about success; all shares ask the same questions."""
    if (shards[0] / SUCCESS_FILE).exists():
        shutil.copyfile(shards[0] / SUCCESS_FILE, out.path / SUCCESS_FILE)


def join_sample(seed: int, shards: Sequence[tuple[Path, int]], out: Output) -> None:
    """Write a sample of all labels from the samples of the shares, given as (directory, number of pairs)."""
    drawn = draw(*read_labels(out.path), _seed(seed))
    join_samples(shards, drawn, out.path)


def questions_about_success(
    seed: int, annotate: AnnotateParams, adapter: EnvAdapter, captions: Sequence[str]
) -> tuple[list[SuccessQuestion], str]:
    """Return the questions whether success at the task is better than another outcome.

    Args:
        annotate: how many are asked, and towards which goal.
        captions: of single steps.

    Returns:
        The questions, and why there are none if some could be expected.
    """
    n = annotate.probe.success_questions
    if n == 0:
        return [], ""
    not_asked = "The annotator was not asked whether success at the task is better than another outcome: "
    if has_other_goal(annotate, adapter):
        return [], f"{not_asked}its goal is not the task's own (annotate.language_model.goal)."
    questions = success_questions(captions, adapter, n, derive_seed(seed, "success"))
    unnamed = f"the adapter of {adapter.env_id} names no caption that says that the task is solved."
    if adapter.success_words:
        unnamed = f"no caption has the words for success of the adapter of {adapter.env_id} (success_words)."
    return questions, "" if questions else f"{not_asked}{unnamed}"


def ask_about_success(
    seed: int,
    annotate: AnnotateParams,
    adapter: EnvAdapter,
    captions: Sequence[str],
    annotator: Annotator,
    out: Output,
) -> list[str]:
    """Ask the annotator whether success at the task is better than another outcome, and keep its answers.

    Returns:
        A sentence if it prefers other captions and so must not be asked about pairs, which quality.json then records.
    """
    questions, why_not = questions_about_success(seed, annotate, adapter, captions)
    if not questions:
        out.notes += [why_not] if why_not else []
        return []
    answers = ask_success(annotator, questions)
    write_json(out.path / SUCCESS_FILE, answers)
    checked = check_success(annotate.gates, answers, kind_of(annotate).advice)
    _warn(checked, out)
    if checked.refusals:
        write_json(out.path / QUALITY, {"annotator": annotator.name, SUCCESS: answers, "gates": checked.limits})
    return checked.refusals


def _warn(checked: Checked, out: Output) -> None:
    out.notes += [*checked.warnings, *checked.notes]
    for warning in checked.warnings:
        tell(f"annotate: {warning}")


def assess(
    seed: int, annotate: AnnotateParams, adapter: EnvAdapter, captions: Path, texts: Sequence[str], out: Output
) -> tuple[dict[str, Any], list[str]]:
    """Write quality.json beside the labels, even if they are bad, and add warnings to the notes.

    Returns:
        The content of quality.json, and a sentence for each failed gate of annotate.gates.

    Raises:
        DataError: the gold file cannot be read.
    """
    gold = gold_of(annotate, adapter)
    pairs, preferences = read_labels(out.path)
    known = references(pairs, texts, adapter, gold, read_vocabulary(captions).texts)
    members = read_votes(out.path, len(pairs))
    measured = measure(pairs, preferences, read_verdicts(out.path), known, _seed(seed), members)
    quality = {"annotator": read_annotator(out.path), **measured}
    if missing := read_missing(out.path):
        quality["missing"] = [asdict(entry) for entry in missing]
    if gold is not None:
        quality["gold_labels"] = len(gold.labels)
        if gold.others:
            out.notes.append(f"{gold.path}: ignored {gold.others} lines, for another environment or goal.")
    gates, advice = annotate.gates, kind_of(annotate).advice
    checked = check_gates(gates, quality, advice)
    limits = checked.limits
    if (out.path / SUCCESS_FILE).exists():  # it was checked before any pair was asked about
        quality[SUCCESS] = read_json(out.path / SUCCESS_FILE)
        limits = limits | check_success(gates, quality[SUCCESS], advice).limits
    if limits:
        quality["gates"] = limits
    write_json(out.path / QUALITY, quality)
    _warn(checked, out)
    return quality, checked.refusals


def _replies(annotate: AnnotateParams, keys: Sequence[str]) -> dict[str, str]:
    """Return the models' answers by their keys in the store."""
    if not keys:
        return {}
    with ResponseStore(annotate.language_model.store) as store:
        return {key: text for key, text, *_ in store.contents(keys)}


def _seed(run_seed: int) -> int:
    return derive_seed(run_seed, "quality")
