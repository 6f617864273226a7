"""annotate: captions → preferences. Samples pairs of segments and asks judges about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Unpack

from laurel.data.directory import Output, output_directory
from laurel.data.json_file import read_json, write_json
from laurel.data.labels import LabelWriter
from laurel.data.lineage import read_inputs
from laurel.data.missing import MOST, most_frequent, read_missing
from laurel.data.quality import QUALITY, metrics
from laurel.data.sample import SAMPLE, read_sample
from laurel.envs import adapter_for
from laurel.errors import DataError, ParamsError, PromptError, RefusedLabelsError
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.asked import prompt_of
from laurel.llm.budget import Budget
from laurel.llm.mirror import mirrored
from laurel.params.annotation import MAIN, AnnotateParams
from laurel.params.fields import dumped
from laurel.params.stage_sections import AnnotateSections
from laurel.stages.label_quality import gold_of, keep_sample, require_references, setting_aside
from laurel.stages.label_sets import LabelSet, label_sets, title, titled
from laurel.stages.pair_labelling import Meter, PairLabelling
from laurel.tracking.judgements import log_pairs, log_prompt
from laurel.tracking.run import Run
from laurel.tracking.tracker import Tracker

STAGE, SHARD = "annotate", "annotate-shard"
LONGEST_TAG = 5000
"""Maximum length of an MLflow tag, in characters."""


def run(
    captions: Path,
    output: Path,
    shard: tuple[int, int] | None = None,
    responses: Path | None = None,
    **sections: Unpack[AnnotateSections],
) -> None:
    """Label pairs of segments, by each judge that is needed and for each of `annotate.feedback_seeds`.

    Args:
        output: directory to write pairs.parquet, preferences.parquet, quality.json and more into; files of other judges
            and label sets go to `laurel.data.preferences.labels_of`.
        shard: (number, of how many): judge only this shard of the pairs; `merge_preferences` joins them.
        responses: folder to which a language model's answers are copied, if this machine's disk is discarded after the
            run; otherwise None.

    Raises:
        AnnotationError: the annotator cannot be made, or a budget is spent.
        RefusedLabelsError: nothing can be learned from the labels; they are kept beside `output`.
        DataError: the captions are missing, damaged or of another environment.
        ParamsError: a shard is requested, but the choice of pairs depends on all labels.
    """
    seed, annotate, judges = sections["seed"], sections["annotate"], sections["judges"]
    if shard and annotate.in_rounds:
        raise ParamsError(
            "A shard of the pairs cannot be judged separately if annotate.sampler or annotate.stop depends on all "
            "labels so far: judge all pairs together, or set the sampler to uniform or frequency and stop.rule to none."
        )
    used, inputs = described(sections), {"captions": captions}
    read_inputs(used, inputs)
    adapter = adapter_for(sections["env"], with_action=sections["caption"].with_action)
    gold = gold_of(annotate, adapter)  # invalid gold labels are reported before anything is paid for
    require_references(annotate, judges)
    kept = responses if annotate.keeps_responses and judges else None
    own_params = {**used, "shard": shard} if shard else used
    sources = {**inputs, "gold": gold.path} if gold and judges and not shard else inputs
    refusals: list[str] = []
    with (
        mirrored(annotate.language_model.store, kept),
        output_directory(output, stage=SHARD if shard else STAGE, params=own_params, inputs=sources) as out,
        setting_aside(output, out, own_params, sources),
    ):
        if MAIN not in judges:
            write_unlabelled(seed, annotate, out, others=len(judges) > 0)
        budget = Budget(annotate.budget.share(*shard) if shard else annotate.budget)
        meter, notes = Meter(out), dict[LabelSet, list[str]]()
        for label_set in label_sets(annotate, judges):
            of_judge, place = annotate.of_judge(label_set.judge), label_set.place(out.path)
            described_here = {
                **used,
                "annotate": dumped({"annotate": of_judge})["annotate"],
                "label_set": label_set.number,
            }
            place.parent.mkdir(exist_ok=True)
            with (
                nullcontext(out)
                if place == out.path
                else output_directory(place, stage=STAGE, params=described_here, inputs=sources) as part
            ):
                labelling = PairLabelling(seed, label_set.number, of_judge, adapter, captions, shard)
                meter.begin(part)
                refusals = labelling.run(budget, part, meter)
            notes[label_set] = list(part.notes)
            if part is not out:
                refusals = [
                    f"{title(label_set.judge, [label_set.number], annotate)}: {refusal}" for refusal in refusals
                ]
            if refusals:
                break
        out.notes += titled(notes, annotate)
        if annotate.feedback_seeds > 1:
            out.counts["label_sets"] = annotate.feedback_seeds
        if refusals or not shard:
            log(sections, inputs, out, refusals)


def described(sections: AnnotateSections) -> dict[str, Any]:
    """Return the params that labels depend on, for their manifest; the arms determine the judges."""
    return dumped({name: sections[name] for name in ("seed", "env", "caption", "annotate")})


def write_unlabelled(seed: int, annotate: AnnotateParams, out: Output, *, others: bool = False) -> None:
    """Write an output without labels if no arm needs the main judge; `others`: whether any arm needs another judge."""
    with LabelWriter(out.path, annotate.sampler, seed, annotate.annotator):
        pass
    keep_sample(seed, annotate, (), out, share=False)
    write_json(out.path / QUALITY, {})
    out.counts = {"pairs": 0}
    if others:
        out.notes.append("No arm has a reward learned from the main judge's preferences, so it was not asked.")
    else:
        out.notes.append("No arm has a reward learned from preferences, so no pairs were annotated.")


def log(sections: AnnotateSections, inputs: Mapping[str, Path], out: Output, refusals: Sequence[str]) -> None:
    """Log labels to MLflow; refused labels become a failed run.

    Raises:
        RefusedLabelsError: there are refusals.
    """
    logged = {name: section for name, section in sections.items() if name != "judges"}
    refused = RefusedLabelsError("\n".join(refusals)) if refusals else None
    with Tracker(logged, STAGE, inputs, out).stage_run() as tracked:
        if tracked:
            track(tracked, sections, out)
        if refused:
            raise refused
    if refused:  # where logging failed before, the block ends without an error
        raise refused


def track(run: Run, sections: Mapping[str, Any], out: Output) -> None:
    """Log labels: counts, quality, and a sample of the questions."""
    path = out.path
    known = {key: float(value) for key, value in out.counts.items() if value is not None}
    for file in sorted(path.rglob(QUALITY)):  # other judges and label sets are in subfolders
        begin = "".join(f"{part}." for part in file.relative_to(path).parent.parts)
        known |= {f"{begin}{key}": value for key, value in metrics(read_json(file)).items()}
    run.log_metrics(known)
    if missing := most_frequent(read_missing(path), limit=MOST):
        run.client.set_tag(run.id, "missing_answers", missing[:LONGEST_TAG])
    run.log_directory(path, "preferences")
    folders = {name: path / "judges" / name for name in sorted(sections["annotate"].judges)}
    judges = {MAIN: path, **{name: folder for name, folder in folders.items() if folder.is_dir()}}
    if asked := [judge for judge in judges if judge != MAIN or out.counts.get("pairs")]:  # maybe not the main one
        annotators = dict.fromkeys(sections["annotate"].of_judge(judge).annotator for judge in asked)
        run.client.set_tag(run.id, "annotator", ", ".join(annotators))
    for judge, place in judges.items():
        if (place / SAMPLE).exists() and (sample := read_sample(place)):
            _track_questions(run, sections, sections["annotate"].of_judge(judge), sample)


def _track_questions(
    run: Run, sections: Mapping[str, Any], annotate: AnnotateParams, sample: list[dict[str, Any]]
) -> None:
    """Log a judge's prompts, and its answers about a sample of pairs."""
    try:
        adapter = adapter_for(sections["env"], with_action=sections["caption"].with_action)
        asked = [question for voter in annotate.voters if (question := kind_of(voter).pair_question(adapter))]
        gold = gold_of(annotate, adapter)
    except (DataError, PromptError) as error:  # logged late, when the user's files no longer exist
        run.client.set_tag(run.id, "questions_not_logged", str(error)[:LONGEST_TAG])
        return
    for prompt in {question.prompt for question in asked}:
        log_prompt(run, prompt_of(prompt))
    log_pairs(run, sample, asked[0] if len(asked) == 1 else None, gold)
