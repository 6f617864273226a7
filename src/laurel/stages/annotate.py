"""annotate: captions → preferences. Samples pairs of segments and has them judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from laurel.console import tell
from laurel.errors import AnnotationError, DataError, ParamsError, PromptError, RefusedLabelsError
from laurel.params import CaptionParams, EnvParams, TrackingParams
from laurel.params.annotation import MAIN, AnnotateParams
from laurel.params.fields import dumped

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from laurel.data.directory import Output
    from laurel.data.labels import LabelWriter
    from laurel.envs.base import EnvAdapter, FloatArray, IntArray
    from laurel.feedback.annotator import Annotator
    from laurel.feedback.rounds import OneRound, Rounds
    from laurel.llm.budget import Budget
    from laurel.progress import Advance
    from laurel.tracking.runs import Run

STAGE, SHARD = "annotate", "annotate-shard"
LONGEST_TAG = 5000
"""Characters that MLflow takes."""
Pairs = TypeVar("Pairs", "IntArray", range)


def run(
    seed: int,
    env: EnvParams,
    caption: CaptionParams,
    annotate: AnnotateParams,
    judges: Sequence[str],
    tracking: TrackingParams,
    captions: Path,
    output: Path,
    shard: tuple[int, int] | None = None,
    responses: Path | None = None,
) -> None:
    """Have pairs of segments judged, by each judge that is needed and for each of `annotate.feedback_seeds`.

    Args:
        seed: all random numbers derive from it.
        env: what was stepped.
        caption: what was said of a step.
        annotate: who judges how many pairs.
        judges: names of the judges that arms need: MAIN, or of annotate.judges; () asks nothing.
        tracking: whether and where the run is logged.
        captions: output of the caption stage.
        output: directory to write pairs.parquet, preferences.parquet, quality.json and more into; those of other
            judges and label sets go where `laurel.data.preferences.labels_of` says.
        shard: (number, of how many): judge this share of the pairs alone; `merge_preferences` joins them.
        responses: folder in which a language model's answers are kept beside the store of this machine, whose disk
            goes with it; None where it stays.

    Raises:
        AnnotationError: the annotator cannot be made, or a budget is spent.
        RefusedLabelsError: nothing is to be learned from the labels; they are kept beside `output`.
        DataError: the captions are missing, damaged or of another environment.
        ParamsError: a share is to be judged, but which pairs there are depends on all labels.
    """
    from laurel.data.directory import output_directory
    from laurel.data.lineage import read_inputs
    from laurel.data.preferences import labels_of
    from laurel.envs import adapter_for
    from laurel.feedback.annotator import added
    from laurel.llm.budget import Budget
    from laurel.llm.mirror import mirrored
    from laurel.stages.label_quality import gold_of, setting_aside

    if shard and annotate.in_rounds:
        raise ParamsError(
            "A share of the pairs cannot be judged alone where annotate.sampler or annotate.stop goes by all labels so "
            "far: judge them as a whole, or set the sampler to uniform or frequency and stop.rule to none."
        )
    sections = {"seed": seed, "env": env, "caption": caption, "annotate": annotate}
    used, inputs = dumped(sections), {"captions": captions}
    read_inputs(used, inputs)
    adapter = adapter_for(env, with_action=caption.with_action)
    gold = gold_of(annotate, adapter)  # what is wrong with gold labels is said before anything is paid for
    kept = responses if annotate.keeps_responses and judges else None
    described = {**used, "shard": shard} if shard else used
    sources = {**inputs, "gold": gold.path} if gold and judges and not shard else inputs
    refusals: list[str] = []
    with (
        mirrored(annotate.language_model.store, kept),
        output_directory(output, stage=SHARD if shard else STAGE, params=described, inputs=sources) as out,
        setting_aside(output, out, described, sources),
    ):
        if MAIN not in judges:
            write_nothing(seed, annotate, out, others=len(judges) > 0)
        budget = Budget(annotate.budget.share(*shard) if shard else annotate.budget)
        ordered = sorted(judges, key=lambda judge: (judge != MAIN, judge))
        sets = [(judge, number) for judge in ordered for number in range(annotate.feedback_seeds)]
        for judge, number in sets:
            own, place = annotate.of_judge(judge), labels_of(out.path, judge, number)
            described_here = {**used, "annotate": dumped({"annotate": own})["annotate"], "label_set": number}
            place.parent.mkdir(exist_ok=True)
            with (
                nullcontext(out)
                if place == out.path
                else output_directory(place, stage=STAGE, params=described_here, inputs=sources) as part
            ):
                refusals = _LabelSet(seed, number, own, adapter, captions, shard).label(budget, part)
            if part is not out:
                out.usage = added(out.usage, part.usage)
                title = f"Judge {judge}, label set {number}" if annotate.feedback_seeds > 1 else f"Judge {judge}"
                out.notes += [f"{title}: {note}" for note in part.notes]
                refusals = [f"{title}: {refusal}" for refusal in refusals]
            if refusals:
                break
        if annotate.feedback_seeds > 1:
            out.counts["label_sets"] = annotate.feedback_seeds
        if refusals or not shard:
            log({**sections, "tracking": tracking}, inputs, out, refusals)


@dataclass(frozen=True)
class _LabelSet:
    """Pairs that are drawn together, and judged by one judge."""

    seed: int
    """Of the run."""
    number: int
    """Which of annotate.feedback_seeds."""
    annotate: AnnotateParams
    """The judge's."""
    adapter: EnvAdapter
    captions: Path
    shard: tuple[int, int] | None

    def label(self, budget: Budget, out: Output) -> list[str]:
        """Have the pairs judged and write the labels; return why nothing can be learned from them."""
        from laurel.data.captions import read_segments, read_vocabulary
        from laurel.data.labels import LabelWriter
        from laurel.feedback.annotator import failures_of
        from laurel.feedback.annotators import make_annotator
        from laurel.feedback.rounds import make_rounds
        from laurel.heap import heap_frozen
        from laurel.progress import progress
        from laurel.seeding import derive_seed
        from laurel.stages.label_quality import ask_about_success, keep_missing, keep_sample

        annotate, shard = self.annotate, self.shard
        segments = read_segments(self.captions)
        seed = derive_seed(self.seed, "annotate", *([str(self.number)] if self.number else []))
        rounds = make_rounds(segments.counts, cache(lambda: _embeddings(annotate, segments.texts)), annotate, seed)
        if rounds.at_most == 0:
            raise AnnotationError(
                f"{self.captions}: {len(segments)} distinct segment, so there is no pair to judge. "
                "Collect more steps (collect.steps), use another policy, or name the actions (caption.with_action)."
            )
        texts = read_vocabulary(self.captions).texts
        annotator = make_annotator(annotate, self.adapter, seed, texts, budget=budget)
        probe = probed(annotate, self.adapter, annotator, out)
        if refusals := ask_about_success(self.seed, annotate, self.adapter, texts, annotator, out):
            out.usage = annotator.usage
            return refusals
        most = len(_share(range(rounds.at_most), shard))
        with (
            LabelWriter(out.path, annotate.sampler, seed, annotator.name) as labels,
            progress(most, "annotate", "pairs") as advance,
            heap_frozen(),
        ):
            whole = _label(rounds, annotator, segments.texts, shard, labels, advance)
        statuses = labels.statuses
        keep_sample(self.seed, annotate, segments.texts, out, share=shard is not None)
        keep_missing(annotate, failures_of(annotator), out)
        if not whole:
            of = f" of share {shard[0] + 1} of {shard[1]}" if shard else ""
            judged = f"{sum(statuses.values()):,} of {most:,} pairs{of} were judged"
            cut_short = f"{judged}: the budget of {budget.reached} was reached."
            out.notes.append(cut_short)
        if annotator.simulated:
            out.notes.append(f"The labels are simulated, not a language model's: {annotator.name}.")
        out.notes += rounds.notes
        out.usage = annotator.usage
        out.counts = {**rounds.counts, **probe}
        if shard:
            out.counts = {"pairs": sum(statuses.values()), **statuses, **out.counts}
            refusals = []
        else:
            refusals = conclude(self.seed, annotate, self.adapter, self.captions, statuses, segments.texts, out)
        if not whole and not refusals:
            tell(f"annotate: {cut_short}")
        return refusals


def _label(
    rounds: OneRound | Rounds,
    annotator: Annotator,
    texts: Sequence[str],
    shard: tuple[int, int] | None,
    labels: LabelWriter,
    advance: Advance,
) -> bool:
    """Have all rounds judged, or a share of each, and write what is said; return whether all was asked."""
    from laurel.feedback.annotator import pairs_of

    for first, second in rounds:
        annotator.prepare(pairs_of(texts, _numbers(first), _numbers(second)))
        first, second = _share(first, shard), _share(second, shard)
        p_first = _label_round(first, second, annotator, texts, labels, advance)
        if p_first is None:
            return False
        rounds.observe(first, second, p_first)
    return True


def _label_round(
    first: IntArray,
    second: IntArray,
    annotator: Annotator,
    texts: Sequence[str],
    labels: LabelWriter,
    advance: Advance,
) -> npt.NDArray[np.float64] | None:
    """Write what is said about each pair; return probabilities, NaN for no label, or None if some were not asked."""
    import numpy as np

    from laurel.feedback.annotator import judge, pairs_of

    def count(number: int, *, stored: bool) -> None:
        advance(number, free=stored)

    judgements = judge(annotator, pairs_of(texts, _numbers(first), _numbers(second)), count)
    p_first = np.full(len(first), np.nan)
    unasked = 0
    for i, (a, b, judgement) in enumerate(zip(_numbers(first), _numbers(second), judgements, strict=True)):
        if judgement.status == "unasked":
            unasked += 1
            continue
        labels.add(a, b, judgement)
        if judgement.p_first is not None:
            p_first[i] = judgement.p_first
    return None if unasked else p_first


def probed(annotate: AnnotateParams, adapter: EnvAdapter, annotator: Annotator, out: Output) -> dict[str, float]:
    """Ask the annotator what it must know, if `annotate.probe` says so; return the score as counts.

    Raises:
        AnnotationError: it knows too little.
    """
    from laurel.feedback.probe import ask, has_probe, load_probe

    least = annotate.probe.min_score
    if least is None:
        return {}
    if not has_probe(adapter.env_id):
        out.notes.append(
            f"The annotator was not probed: there are no questions with known answers for {adapter.env_id}."
        )
        return {}
    score = ask(annotator, load_probe(adapter.env_id)).score
    if score.fraction < least:
        raise AnnotationError(
            f"The annotator knows too little of {adapter.env_id} to be asked about pairs: of the questions with known "
            f"answers {score}, but at least {least:.0%} is wanted (annotate.probe.min_score). See `laurel annotate "
            "probe`; try another model or prompt."
        )
    return {"probe_score": score.fraction, "probe_right": score.right, "probe_questions": score.of}


def _embeddings(annotate: AnnotateParams, texts: Sequence[str]) -> FloatArray:
    """Encode what the segments say, with the encoder of the embedding annotator."""
    from laurel.device import torch_device
    from laurel.llm.encoder import load_encoder

    device = torch_device(annotate.embedding.device, "annotate.embedding.device")
    return load_encoder(annotate.embedding.model, device).encode(list(texts))


def _share(pairs: Pairs, shard: tuple[int, int] | None) -> Pairs:
    """Return what one of several is to judge of a round's pairs; all where the round is not shared."""
    if shard is None:
        return pairs
    number, count = shard
    return pairs[len(pairs) * number // count : len(pairs) * (number + 1) // count]


def _numbers(array: IntArray) -> Iterator[int]:
    """Yield Python's integers, a few of them at a time in memory."""
    for start in range(0, len(array), 4096):
        yield from array[start : start + 4096].tolist()


def write_nothing(seed: int, annotate: AnnotateParams, out: Output, *, others: bool = False) -> None:
    """Write no pairs and no labels where no arm needs the main judge; `others` says whether any needs another."""
    from laurel.data.directory import write_json
    from laurel.data.labels import LabelWriter
    from laurel.data.quality import QUALITY
    from laurel.stages.label_quality import keep_sample

    with LabelWriter(out.path, annotate.sampler, seed, annotate.annotator):
        pass
    keep_sample(seed, annotate, (), out, share=False)
    write_json(out.path / QUALITY, {})
    out.counts = {"pairs": 0}
    if others:
        out.notes.append("No arm is paid a reward that is learned from the main judge's preferences: it was not asked.")
    else:
        out.notes.append("No arm is paid a reward that is learned from preferences, so no annotator was asked.")


def conclude(
    seed: int,
    annotate: AnnotateParams,
    adapter: EnvAdapter,
    captions: Path,
    statuses: Mapping[str, int],
    texts: Sequence[str],
    out: Output,
) -> list[str]:
    """Count and measure all labels; return why nothing can be learned from them, as sentences.

    That is, where a gate does not let the labels pass, too many pairs or answers are missing because the annotator
    failed, or no pair has a preference. What was measured is beside the labels.

    Args:
        seed: of the run.
        annotate: the judge's.
        adapter: the environment's.
        captions: output of the caption stage.
        statuses: how many pairs have each status.
        texts: what the segments say that pairs were drawn from.
        out: where the labels are; has the counts of a probe.
    """
    from laurel.stages.label_quality import assess

    out.counts = {"pairs": sum(statuses.values()), "distinct_segments": len(texts), **statuses, **out.counts}
    out.counts |= _agreement(seed, annotate, out)
    quality, refusals = assess(seed, annotate, adapter, captions, texts, out)
    refusals += _failures(annotate, statuses, quality, out)
    return refusals or _nothing_to_learn(annotate, statuses, quality, out)


def log(sections: Mapping[str, Any], inputs: Mapping[str, Path], out: Output, refusals: Sequence[str]) -> None:
    """Log labels to MLflow, those that are refused as a failed run.

    Raises:
        RefusedLabelsError: there are refusals.
    """
    from laurel.tracking.runs import Tracker

    with Tracker(sections, STAGE, inputs, out).stage_run() as tracked:
        if tracked:
            track(tracked, sections, {**out.counts, **out.usage}, out.path)
        if refusals:
            if tracked:
                tracked.client.set_terminated(tracked.id, "FAILED")
            raise RefusedLabelsError("\n".join(refusals))


def _failures(
    annotate: AnnotateParams, statuses: Mapping[str, int], quality: Mapping[str, Any], out: Output
) -> list[str]:
    """Say whether the annotator failed too often, counted by pairs and by single answers."""
    from laurel.data.preferences import FAILURES

    pairs, most = sum(statuses.values()), annotate.max_failure_rate
    failed = sum(statuses[status] for status in FAILURES)
    unusable = quality.get("unusable_rate", {"value": 0.0, "of": 0})
    if not pairs or (failed <= most * pairs and unusable["value"] <= most):
        return []
    said = [
        f"{statuses['api_failed']} got no answer",
        f"{statuses['parse_failed']} none that could be read{_unread(out)}",
    ]
    if statuses["incomplete"]:
        said.append(f"{statuses['incomplete']} too few, such as in one of the two orders alone")
    answers = ""
    if unusable["of"]:
        answers = f", and {unusable['value']:.0%} of {unusable['of']:,} answers never came or could not be read"
    return [
        f"{failed / pairs:.0%} of {pairs} pairs have no label because the annotator failed: {', '.join(said)}{answers}"
        f"; at most {most:.0%} are allowed (annotate.max_failure_rate).{_why(out)}"
    ]


def _nothing_to_learn(
    annotate: AnnotateParams, statuses: Mapping[str, int], quality: Mapping[str, Any], out: Output
) -> list[str]:
    """Say whether no pair has a preference, why that may be, and what to try with the annotator in use."""
    from laurel.feedback.annotator_kind import kind_of
    from laurel.feedback.gates import MOST_BIAS, interval

    pairs = sum(statuses.values())
    if pairs == 0:
        return [f"No pair was judged. {' '.join(out.notes)} Raise the limit (annotate.budget)."]
    if statuses["ok"]:
        return []
    advice, bias = kind_of(annotate).advice, quality.get("position_bias")
    counts = ", ".join(
        f"{statuses[status]} {words}"
        for status, words in (("tie", "ties"), ("abstain", "abstained"), ("incomplete", "answered in part"))
        if statuses[status] or status != "incomplete"
    )
    why = f"Try {advice.ties}." if statuses["tie"] else f"Try {advice.asking}."
    if bias is not None and abs(bias["value"] - 0.5) > MOST_BIAS:
        why = (
            f"{bias['value']:.1%} of answers with a side named the text shown first ({interval(bias)}): it is the "
            f"order that decides, not the texts. Try {advice.asking}."
        )
    return [f"None of {pairs} pairs has a preference ({counts}): there is nothing to learn. {why}"]


def _why(out: Output) -> str:
    """Say why answers are missing, where that is known."""
    from laurel.data.missing import in_a_line, read_missing

    said = in_a_line(read_missing(out.path))
    return f" Reasons: {said}." if said else ""


def _unread(out: Output) -> str:
    """Quote an answer that could not be read, if there was one."""
    from laurel.data.sample import read_sample

    answers = (answer for pair in read_sample(out.path) for answer in pair["answers"])
    unread = next((answer["answer"] for answer in answers if answer["verdict"] == "unread" and answer["answer"]), "")
    return f", such as {' '.join(unread.split())[:200]!a}" if unread else ""


def _agreement(seed: int, annotate: AnnotateParams, out: Output) -> dict[str, float]:
    """Write how far the members of an ensemble agree, and note those that failed; return kappa as counts."""
    from laurel.data.directory import write_json
    from laurel.data.members import tally_members
    from laurel.data.preferences import FAILURES
    from laurel.feedback.agreement import agreement, table
    from laurel.seeding import derive_seed

    tally = tally_members(out.path)
    if tally is None:
        return {}
    found = agreement(tally.patterns, derive_seed(seed, "agreement"))
    members = [{"name": n, "statuses": s} for n, s in zip(tally.names, tally.statuses, strict=True)]
    write_json(out.path / "agreement.json", {"members": members, **found})
    out.notes.append(f"Members of the ensemble agree: {table(tally.names, found).splitlines()[0]}.")
    for name, statuses in zip(tally.names, tally.statuses, strict=True):
        failed = sum(statuses[status] for status in FAILURES) / max(sum(statuses.values()), 1)
        if failed > annotate.max_failure_rate:
            out.notes.append(f"{failed:.0%} of the pairs have no vote of {name}, because it failed.")
    kappa = found["kappa"]
    edges = zip(("kappa_low", "kappa_high"), kappa["ci95"] or (), strict=False)
    return {**({} if kappa["value"] is None else {"kappa": kappa["value"]}), **dict(edges)}


def track(run: Run, sections: Mapping[str, Any], counts: Mapping[str, float | None], path: Path) -> None:
    """Log labels: how many of which kind, what they cost, how far they can be trusted, and who was asked what."""
    from laurel.data.directory import read_json
    from laurel.data.missing import MOST, in_a_line, read_missing
    from laurel.data.quality import QUALITY, metrics
    from laurel.data.sample import SAMPLE, read_sample
    from laurel.envs import adapter_for
    from laurel.feedback.annotator_kind import kind_of
    from laurel.stages.label_quality import gold_of
    from laurel.tracking.judgements import log_prompt, log_traces

    known = {key: float(value) for key, value in counts.items() if value is not None}
    run.log_metrics({**known, **metrics(read_json(path / QUALITY))})
    if missing := in_a_line(read_missing(path), most=MOST):
        run.client.set_tag(run.id, "missing_answers", missing[:LONGEST_TAG])
    run.log_directory(path, "preferences")
    if not (path / SAMPLE).exists():  # labels that were refused before any pair was asked about
        return
    annotate: AnnotateParams = sections["annotate"]
    try:
        adapter = adapter_for(sections["env"], with_action=sections["caption"].with_action)
        asked = [question for voter in annotate.voters if (question := kind_of(voter).pair_question(adapter))]
        gold = gold_of(annotate, adapter)
    except (DataError, PromptError) as error:  # logged late, where files of the user's are not there any more
        run.client.set_tag(run.id, "questions_not_logged", str(error)[:LONGEST_TAG])
        return
    for prompt in {question.prompt for question in asked}:
        log_prompt(run, prompt)
    log_traces(run, read_sample(path), asked[0] if len(asked) == 1 else None, gold)
