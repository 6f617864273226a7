"""Questions to language models, logged to MLflow: prompts in its registry, and a sample of the questions as traces.

A prompt's file stays the source: its text becomes a version in the registry, identified by its digest. Only a few
questions become traces, with a span per answer: a trace takes MLflow some 30 ms, so traces of 100,000 questions would
take longer than asking them. The asking code keeps the sample (`laurel.feedback.asked`); for labelled pairs it is the
sample for human review (`laurel.data.sample`), and human labels are logged as feedback.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from laurel.data.asked import MOST, Asked, AskedPrompt, GivenAnswer, joined
from laurel.feedback.annotator import Pair
from laurel.tracking.run import Run

if TYPE_CHECKING:
    from laurel.data.gold import GoldFile
    from laurel.feedback.questions.pair import PairQuestion

CURRENT = "current"
"""Alias of the version that was used last."""
GOLD = "gold"
"""Name of the feedback that holds a human label."""
ORDERS = ("first text first", "second text first")
"""Names of a pair's two orders."""


def log_asked(run: Run, asked: Sequence[Asked]) -> None:
    """Log the prompts of samples of any kind, and their items as traces.

    Raises:
        MlflowException: fewer traces arrived than were sent; MLflow itself only logs a warning then.
    """
    samples = joined(asked)
    for prompt in {sample["prompt"]["digest"]: sample["prompt"] for sample in samples}.values():
        log_prompt(run, prompt)
    with _arriving(run, sum(len(sample["items"]) for sample in samples)):
        for sample in samples:
            kind = sample["prompt"]["kind"]
            for number, answers in enumerate(sample["items"]):
                given: list[GivenAnswer] = [{**answer, "annotator": sample["name"]} for answer in answers]
                spans = [(_named(kind, answer), answer) for answer in given]
                values = [{"verdict": answer["verdict"], "value": answer["value"]} for answer in answers]
                inputs, outputs = {"messages": answers[0]["messages"]}, {"answers": values}
                _trace(run, f"{kind} {number}", inputs, {"question": kind}, spans, outputs)


def log_prompt(run: Run, prompt: AskedPrompt) -> None:
    """Link a run to its prompt's version in MLflow's registry; a text that is not there yet is registered."""
    from mlflow.exceptions import MlflowException

    name = re.sub(r"[^A-Za-z0-9_.-]", "-", f"{prompt['kind']}.{prompt['name']}")
    digest = f"sha256-{prompt['digest'][:16]}"
    try:
        version = run.client.get_prompt_version_by_alias(name, digest)
    except MlflowException as error:
        if error.error_code not in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
            raise
        tags = {"question": prompt["kind"], "answer": prompt["answer"], "sha256": prompt["digest"]}
        message = prompt["description"] or "A prompt's file."
        version = run.client.register_prompt(name, prompt["text"], commit_message=message, tags=tags)
        run.client.set_prompt_alias(name, digest, version.version)
    run.client.set_prompt_alias(name, CURRENT, version.version)
    run.client.link_prompt_version_to_run(run.id, version)


def log_pairs(
    run: Run, sample: Sequence[Mapping[str, Any]], question: PairQuestion | None, gold: GoldFile | None
) -> None:
    """Log the first pairs of a sample that were answered, each as a trace with its answers and a person's label.

    Args:
        run: of the stage that asked.
        sample: as in `laurel.data.sample.read_sample`.
        question: the question, if all pairs were asked in the same words; None leaves the messages out.

    Raises:
        MlflowException: as of `log_asked`.
    """
    pairs = [pair for pair in sample if pair["answers"]][:MOST]
    with _arriving(run, len(pairs)):
        for pair in pairs:
            texts = Pair(pair["first"], pair["second"])
            given = [_given(texts, answer, question) for answer in pair["answers"]]
            spans = [(_named("pair", answer), answer) for answer in given]
            outputs = {key: pair[key] for key in ("status", "p_first", "swap_consistent")}
            trace = _trace(run, f"pair {pair['pair']}", texts._asdict(), {"status": pair["status"]}, spans, outputs)
            label = gold.labels.get(frozenset(texts)) if gold else None
            if label and label.answer and gold:
                answer = label.answer
                if label.first != texts.first and answer != "tie":
                    answer = "second" if answer == "first" else "first"
                _feedback(trace, answer, gold)


@contextmanager
def _arriving(run: Run, number: int) -> Iterator[None]:
    """Send traces within the block, and check that all of them arrive."""
    from mlflow import tracing
    from mlflow.exceptions import MlflowException

    if not number:
        return (yield)
    # MLflow sends traces to the server of this process's first trace, which may be another one
    tracing.reset()  # type: ignore[no-untyped-call]
    yield
    arrived = run.client.search_traces([run.experiment], f"attributes.run_id = '{run.id}'", max_results=number)
    if len(arrived) < number:
        raise MlflowException(f"{len(arrived)} of {number} traces arrived")


def _named(kind: str, answer: GivenAnswer) -> str:
    """Name the span of an answer."""
    if kind == "pair":
        return ORDERS[answer["variant"]]
    return f"variant {answer['variant']}, vote {answer['vote']}"


def _given(texts: Pair, answer: Mapping[str, Any], question: PairQuestion | None) -> GivenAnswer:
    """Return a pair's answer in the form of other kinds of samples."""
    asked = question.messages(texts, int(answer["swapped"])) if question else ()
    return {
        "variant": int(answer["swapped"]),
        "vote": answer["vote"],
        "messages": [{"role": str(message.role), "content": message.content} for message in asked],
        "verdict": answer["verdict"],
        "value": answer["answer_p_first"],
        "text": answer["answer"],
        "annotator": answer["annotator"],
    }


def _trace(
    run: Run,
    name: str,
    inputs: Mapping[str, Any],
    tags: Mapping[str, str],
    answers: Sequence[tuple[str, GivenAnswer]],
    outputs: Mapping[str, Any],
) -> str:
    """Send a trace with a span for each answer, given by its name; return its id."""
    import mlflow
    from mlflow.entities import SpanType

    root = mlflow.start_span_no_context(
        name,
        inputs=dict(inputs),
        experiment_id=run.experiment,
        metadata={"mlflow.sourceRun": run.id},
        tags=dict(tags),
    )
    for shown, answer in answers:
        span = mlflow.start_span_no_context(
            shown,
            span_type=SpanType.CHAT_MODEL,
            parent_span=root,
            inputs={"messages": answer["messages"]} if answer["messages"] else dict(inputs),
            attributes={"vote": str(answer["vote"]), "annotator": answer.get("annotator", "")},
        )
        message = {"content": answer["text"], "verdict": answer["verdict"], "value": answer["value"]}
        span.set_outputs({"role": "assistant", **message})
        span.end()
    root.set_outputs(dict(outputs))
    root.end()
    return str(root.trace_id)


def _feedback(trace: str, answer: str, gold: GoldFile) -> None:
    """Add a person's label to a trace: which of its texts is better, or tie."""
    import mlflow
    from mlflow.entities import AssessmentSource, AssessmentSourceType

    person = AssessmentSource(AssessmentSourceType.HUMAN, gold.path.name)
    mlflow.log_feedback(trace_id=trace, name=GOLD, value=answer, source=person)
