"""Judgements as a log for Inspect's viewer; with the real package, which `make test-others` brings."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_server import ChatServer, completion

from laurel.cli.app import main
from laurel.data.preferences import read_answers
from laurel.feedback.inspect_log import sample_ids
from priced_project import asking, run
from tiny_project import Project

WRITE = ["export", "inspect", "--output", "logs/j.eval", "--responses", "responses.db"]


def test_a_missing_package_is_one_sentence(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("inspect_ai"):
        pytest.skip("inspect_ai is installed")
    assert main(WRITE) == 2
    assert capsys.readouterr().err.endswith("inspect_ai, which is not installed: pip install 'laurel-rl[inspect]'\n")


def test_each_answer_is_a_sample_with_what_was_asked(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    log = pytest.importorskip("inspect_ai.log")
    assert main(WRITE) == 2
    assert "annotate" in capsys.readouterr().err, "nothing was asked yet"
    asking(project, server.url, **{"language_model.responses": "responses.db"})
    project.run("annotate")
    assert main([*WRITE[:-1], "none.db"]) == 2
    assert "none.db is not there" in capsys.readouterr().err
    assert main(WRITE) == 0
    table = read_answers(project.output("annotate"))
    assert table is not None
    assert f"{len(table)} answers in logs/j.eval" in capsys.readouterr().out.replace(",", "")
    (found,) = log.list_eval_logs("logs")
    written = log.read_eval_log(found.name)
    assert (written.status, written.eval.solver, written.eval.model) == ("success", None, "teacher")
    assert "not run by Inspect" in written.eval.task_description
    answers = {(row["pair"], row["swapped"]): row for row in table.to_pylist()}
    assert len(written.samples) == len(answers) == written.results.completed_samples
    for sample in written.samples:
        pair, _, swapped = str(sample.id).partition("-")
        assert sample.scores["verdict"].value == answers[int(pair), bool(swapped)]["verdict"]
        texts = [sample.metadata[side] for side in ("first", "second")]
        shown = [json.loads(text) for text in re.findall(r'(?m)^Text [12]: (".*")$', sample.input[-1].text)]
        assert shown == (texts[::-1] if swapped else texts)
        if (place := sample.scores["verdict"].answer.rpartition("shown ")[2]) in ("first", "second"):
            preferred = shown[("first", "second").index(place)]
            assert preferred == sample.metadata[sample.scores["verdict"].value]
            assert f'"best_description": {1 + shown.index(preferred)}' in sample.output.completion
        assert sample.output.completion == sample.messages[-1].text != ""
        assert sample.output.usage.total_tokens > 0
    assert not list(Path("logs").glob(".*"))


@pytest.mark.parametrize("cached", [3, pytest.param(10**6, id="counted apart from the input")])
def test_usage_is_that_of_the_bill(project: Project, server: ChatServer, cached: int) -> None:
    """Answers that could not be read were left out, and cached tokens counted as Inspect counts others."""
    log = pytest.importorskip("inspect_ai.log")

    def mumbling(request: Any, body: dict[str, Any]) -> Any:
        _, asked, *later = (message["content"] for message in body["messages"])
        if len(asked) % 2 and not later:
            return web.json_response(completion("Hm."))
        first, second = re.findall(r'(?m)^Text [12]: "(.*)"$', asked)
        answered = completion(json.dumps({"analysis": "", "best_description": 1 if len(first) > len(second) else 2}))
        answered["usage"]["prompt_tokens_details"] = {"cached_tokens": cached}
        return web.json_response(answered)

    asking(project, server.url, **{"language_model.responses": "responses.db"})
    server.behave = mumbling
    used = run(project)["usage"]
    assert main(WRITE) == 0
    (found,) = log.list_eval_logs("logs")
    written = log.read_eval_log(found.name)
    assert any(len(sample.messages) > 3 for sample in written.samples)
    total = written.stats.model_usage["teacher"]
    assert total.input_tokens_cache_read == cached * len(written.samples)
    assert total.input_tokens == used["input_tokens"] - (total.input_tokens_cache_read if cached == 3 else 0)
    assert total.total_tokens == total.input_tokens + total.input_tokens_cache_read + total.output_tokens
    assert total.output_tokens == used["output_tokens"]
    assert total.total_cost == pytest.approx(used["cost_usd"])
    for kind in ("input_tokens", "total_cost"):
        by_sample = [getattr(sample.model_usage["teacher"], kind) for sample in written.samples]
        assert sum(by_sample) == pytest.approx(getattr(total, kind))


def test_each_answer_of_an_ensemble_is_a_sample_of_its_own(project: Project, server: ChatServer) -> None:
    """Members answer the same pairs in the same orders, and a log holds one sample for an id and an epoch."""
    asking(project, server.url, **{"language_model.responses": "responses.db"})
    members = [
        {"annotator": "openai", "openai": {"model": model, "base_url": server.url}} for model in ("teacher", "other")
    ]
    project.change({"annotate.annotator": "ensemble", "annotate.ensemble": {"members": members}, "annotate.budget": {}})
    project.run("annotate")
    table = read_answers(project.output("annotate"))
    assert table is not None
    answers = table.to_pylist()
    assert len({answer["annotator"] for answer in answers}) == 2
    samples = {(name, answer["vote"]) for name, answer in zip(sample_ids(answers), answers, strict=True)}
    assert len(samples) == len(answers)
