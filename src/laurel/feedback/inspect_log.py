"""Writes a language model's answers as a log for Inspect's viewer (https://inspect.aisi.org.uk/log-viewer.html).

A sample of the log is a pair in one order, from each member of an ensemble, and an epoch is a vote. A sample has the
messages, the model's output, and the parsed verdict as its score; its usage includes an answer that could not be read
and got a follow-up. The log states that it was not run by Inspect: it has no solver and no events.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from laurel import __version__
from laurel.data.manifest import checked_manifest
from laurel.data.own_preferences import read_own
from laurel.data.preferences import STAGE, read_answers
from laurel.data.written import written_whole
from laurel.errors import DataError
from laurel.feedback.keys import QuestionKeys
from laurel.llm.prices import uncached
from laurel.llm.responses import ResponseStore
from laurel.llm.responses_export import Costs

NOTE = (
    "Asked by laurel annotate and not run by Inspect: there is no solver, and a score is the verdict that was read. "
    "First and second are the texts of the pair in its own order, which a swapped sample shows the other way round; a "
    "score's answer says which of the shown texts is meant."
)
ENDINGS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter"}
"""Why an answer ended -> Inspect's word for it."""
SUFFIXES = (".eval", ".json")


def export_inspect(preferences: Path, captions: Path, responses: Path, output: Path) -> tuple[int, int]:
    """Write the answers behind labels; return their number, and the number of answers that the store lacks.

    Raises:
        DataError: something is missing or damaged, or no language model was asked.
        ModuleNotFoundError: inspect_ai is not installed.
    """
    from inspect_ai import log
    from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput, ModelUsage
    from inspect_ai.scorer import Score

    manifest = checked_manifest(preferences, STAGE)
    rows, answers = read_own(preferences, captions).rows(), read_answers(preferences)
    if answers is None or not responses.is_file():
        missing = f"{responses} is not there" if answers is not None else "it holds no answers of a language model"
        raise DataError(f"{preferences}: {missing}, so there is nothing to show.")
    asked, wanted, costs = answers.to_pylist(), set(answers["response"].to_pylist()), Costs(None)
    kept, unread = {}, {}
    with ResponseStore(responses, read_only=True) as store:
        for row in store.rows():
            if row["key"] in wanted:
                kept[row["key"]] = {**row, "cost_usd": costs.of(row)}
            if (follow_up := QuestionKeys.follow_up(row["key"], row["text"])) in wanted:
                unread[follow_up] = {**row, "cost_usd": costs.of(row)}
    if not kept:
        raise DataError(f"{responses}: holds none of the answers of {preferences}. Name their store with --responses.")

    def used(response: Mapping[str, Any]) -> Any:
        read, written, cached = (response[name] or 0 for name in ("input_tokens", "output_tokens", "cached_tokens"))
        new = int(uncached(read, cached))
        return ModelUsage(
            input_tokens=new,  # as Inspect counts them
            input_tokens_cache_read=response["cached_tokens"],
            output_tokens=written,
            total_tokens=new + cached + written,
            total_cost=response["cost_usd"],
        )

    def sample(name: str, answer: dict[str, Any], response: dict[str, Any]) -> Any:
        pair, verdict = rows[answer["pair"]], answer["verdict"]
        usage = used(response)
        first = unread.get(response["key"])  # the unreadable answer that this one follows up
        message = ChatMessageAssistant(content=response["text"], model=response["model"], source="generate")
        choice = ChatCompletionChoice(message=message, stop_reason=ENDINGS.get(response["finish_reason"], "unknown"))
        messages = [{**message, "id": None} for message in json.loads(response["messages"])]
        facts = {name: getattr(pair, name) for name in ("prompt", "first", "second", "status", "p_first")}
        return log.EvalSample(
            id=name,
            epoch=answer["vote"] + 1,
            input=messages,
            target="",
            messages=[*messages, message],
            output=ModelOutput(model=response["model"], choices=[choice], usage=usage, time=response["seconds"]),
            scores={"verdict": Score(value=verdict, answer=read_as(answer), metadata={"p_first": answer["p_first"]})},
            metadata={**facts, "annotator": answer["annotator"], "swapped": answer["swapped"], "key": response["key"]},
            model_usage={response["model"]: usage if first is None else used(first) + usage},
        )

    named = zip(sample_ids(asked), asked, strict=True)
    samples = [sample(name, answer, kept[answer["response"]]) for name, answer in named if answer["response"] in kept]
    models, dates = sorted({row["model"] for row in kept.values()}), [row["asked_at"] for row in kept.values()]
    began, ended = (datetime.fromtimestamp(date, UTC).isoformat() for date in (min(dates), max(dates)))
    verdicts = Counter(item.scores["verdict"].value for item in samples)
    shares = {name: log.EvalMetric(name=name, value=count / len(samples)) for name, count in verdicts.items()}
    score = log.EvalScore(name="verdict", scorer="verdict", scored_samples=len(samples), metrics=shares)
    spec = log.EvalSpec(
        created=began,
        task="laurel annotate",
        task_id=manifest["digest"][:22],
        task_description=NOTE,
        dataset=log.EvalDataset(name=str(preferences), samples=len(samples)),
        model=", ".join(models),
        config=log.EvalConfig(epochs=max(item.epoch for item in samples)),
        packages={"laurel-rl": __version__},
        metadata={"note": NOTE, "notes": manifest["notes"], "params": manifest["params"]},
    )
    results = log.EvalResults(total_samples=len(asked), completed_samples=len(samples), scores=[score])
    totals: dict[str, Any] = {}
    for item in samples:
        for model, usage in item.model_usage.items():
            totals[model] = totals[model] + usage if model in totals else usage
    stats = log.EvalStats(started_at=began, completed_at=ended, model_usage=totals)
    written = log.EvalLog(status="success", eval=spec, results=results, stats=stats, samples=samples)
    with written_whole(output, " Choose another --output.") as partial:
        log.write_eval_log(written, partial)
    return len(samples), len(asked) - len(samples)


def read_as(answer: Mapping[str, Any]) -> str:
    """Return a verdict in words that hold for the texts as shown: the verdict itself is of the pair in its own order.

    >>> read_as({"verdict": "first", "swapped": True}), read_as({"verdict": "second", "swapped": False})
    ("the pair's first text, shown second", "the pair's second text, shown second")
    >>> read_as({"verdict": "tie", "swapped": True})
    'tie'
    """
    verdict: str = answer["verdict"]
    if verdict not in ("first", "second"):
        return verdict
    return f"the pair's {verdict} text, shown {'first' if (verdict == 'first') != answer['swapped'] else 'second'}"


def sample_ids(answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the id of each answer's sample; a log holds one sample for an id and an epoch, and would drop others.

    >>> sample_ids([{"pair": 3, "swapped": False, "annotator": "a"}, {"pair": 3, "swapped": True, "annotator": "a"}])
    ['3', '3-swapped']
    >>> sample_ids([{"pair": 3, "swapped": True, "annotator": "a"}, {"pair": 3, "swapped": True, "annotator": "b"}])
    ['3-swapped-member-0', '3-swapped-member-1']
    """
    members = list(dict.fromkeys(answer["annotator"] for answer in answers))
    number = {name: f"-member-{n}" if len(members) > 1 else "" for n, name in enumerate(members)}
    return [
        f"{answer['pair']}{'-swapped' if answer['swapped'] else ''}{number[answer['annotator']]}" for answer in answers
    ]
