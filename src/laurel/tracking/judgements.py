"""What a language model was asked, in MLflow: prompts in its registry, and a sample of the pairs as traces.

A prompt's file stays the source: a version in the registry has its text, found again by its digest. There is a trace
for each of a few pairs, with a span for each answer, and what a person says of the pair as feedback: a trace takes
MLflow some 30 ms, so that one for each of 100,000 questions would take longer than asking them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from laurel.feedback.annotator import Pair
from laurel.tracking.run import Run

if TYPE_CHECKING:
    from laurel.data.gold import GoldFile
    from laurel.feedback.prompt import Prompt
    from laurel.feedback.questions.pair import PairQuestion

TRACES = 20
"""Pairs that have a trace, at most."""
CURRENT = "current"
"""Alias of the version that was asked last."""
GOLD = "gold"
"""Name of the feedback that is a person's label."""


def log_prompt(run: Run, prompt: Prompt) -> None:
    """Link a run to its prompt's version in MLflow's registry; a text that is not there yet is registered."""
    from mlflow.exceptions import MlflowException

    name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{prompt.form.kind}.{prompt.name}")
    digest = f"sha256-{prompt.digest[:16]}"
    try:
        version = run.client.get_prompt_version_by_alias(name, digest)
    except MlflowException as error:
        if error.error_code not in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
            raise
        tags = {"question": prompt.form.kind, "answer": prompt.answer, "sha256": prompt.digest}
        message = prompt.description or "A prompt's file."
        version = run.client.register_prompt(name, prompt.text, commit_message=message, tags=tags)
        run.client.set_prompt_alias(name, digest, version.version)
    run.client.set_prompt_alias(name, CURRENT, version.version)
    run.client.link_prompt_version_to_run(run.id, version)


def log_traces(
    run: Run, sample: Sequence[Mapping[str, Any]], question: PairQuestion | None, gold: GoldFile | None
) -> None:
    """Log the first pairs of a sample that were answered, each as a trace with its answers and a person's label.

    Args:
        run: of the stage that asked.
        sample: as in `laurel.data.sample.read_sample`.
        question: what was asked, if all was asked in the same words; None leaves the messages out.

    Raises:
        MlflowException: fewer traces arrived than were sent, of which MLflow itself only logs a warning.
    """
    from mlflow import tracing
    from mlflow.exceptions import MlflowException

    pairs = [pair for pair in sample if pair["answers"]][:TRACES]
    if not pairs:
        return
    # traces go where MLflow was when this process sent its first one, which may have been elsewhere
    tracing.reset()  # type: ignore[no-untyped-call]
    for pair in pairs:
        trace = _trace(run, pair, question)
        label = gold.labels.get(frozenset((pair["first"], pair["second"]))) if gold else None
        if label and label.answer and gold:
            answer = label.answer
            if label.first != pair["first"] and answer != "tie":
                answer = "second" if answer == "first" else "first"
            _feedback(trace, answer, gold)
    arrived = run.client.search_traces([run.experiment], f"attributes.run_id = '{run.id}'", max_results=TRACES)
    if len(arrived) < len(pairs):
        raise MlflowException(f"{len(arrived)} of {len(pairs)} traces arrived")


def _trace(run: Run, pair: Mapping[str, Any], question: PairQuestion | None) -> str:
    """Send a pair's trace; return its id."""
    import mlflow
    from mlflow.entities import SpanType

    texts = Pair(pair["first"], pair["second"])
    root = mlflow.start_span_no_context(
        f"pair {pair['pair']}",
        inputs=texts._asdict(),
        experiment_id=run.experiment,
        metadata={"mlflow.sourceRun": run.id},
        tags={"status": pair["status"]},
    )
    for answer in pair["answers"]:
        swapped = bool(answer["swapped"])
        asked = question.messages(texts, int(swapped)) if question else ()
        messages = [{"role": message.role, "content": message.content} for message in asked]
        span = mlflow.start_span_no_context(
            "second text first" if swapped else "first text first",
            span_type=SpanType.CHAT_MODEL,
            parent_span=root,
            inputs={"messages": messages} if messages else texts._asdict(),
            attributes={"vote": answer["vote"], "annotator": answer["annotator"]},
        )
        message = {"content": answer["answer"], "verdict": answer["verdict"], "p_first": answer["answer_p_first"]}
        span.set_outputs({"role": "assistant", **message})
        span.end()
    root.set_outputs({key: pair[key] for key in ("status", "p_first", "swap_consistent")})
    root.end()
    return str(root.trace_id)


def _feedback(trace: str, answer: str, gold: GoldFile) -> None:
    """Add a person's label to a trace: which of its texts is better, or tie."""
    import mlflow
    from mlflow.entities import AssessmentSource, AssessmentSourceType

    person = AssessmentSource(AssessmentSourceType.HUMAN, gold.path.name)
    mlflow.log_feedback(trace_id=trace, name=GOLD, value=answer, source=person)
