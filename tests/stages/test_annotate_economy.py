"""What asking costs, as a user meets it: the dry run, budgets, and batches, against a server on this machine."""

from __future__ import annotations

import gc
import hashlib
import json
import re
import socket
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from batch_api import BatchAPI, batch_api
from chat_server import ChatServer, chat_server, completion, problem
from tiny_llama import make_tiny_llama

from laurel.cli.app import main
from laurel.data.directory import read_manifest
from laurel.data.preferences import read_pairs, read_preferences
from laurel.llm.responses import ResponseStore
from laurel.stages import annotate, merge_preferences
from laurel.stages.pipeline import STAGE
from tiny_project import UNTRACKED, Project

PAIRS = 40


def teacher(_: Any, body: dict[str, Any]) -> Any:
    """Prefer the longer text."""
    first, second = re.findall(r'(?m)^Text [12]: "(.*)"$', body["messages"][-1]["content"])
    best = {"analysis": "x", "best_description": 1 if len(first) > len(second) else 2}
    return web.json_response(completion(json.dumps(best)))


@pytest.fixture(scope="module")
def captioned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    changes = {**UNTRACKED, "env.id": "FrozenLake-v1", "collect.steps": 600, "annotate.n_pairs": PAIRS}
    project = Project.create(tmp_path_factory.mktemp("captioned") / "p", changes)
    project.run("collect", "caption")
    return project


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        running.behave = teacher
        yield running


@pytest.fixture
def project(captioned: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    copy = captioned.copy(tmp_path / "p")
    monkeypatch.chdir(copy.path)
    return copy


def asking(project: Project, url: str, **more: Any) -> Project:
    """Have a project ask a server; keys of `more` are of the section annotate, with _ for a dot."""
    settings = {"model": "teacher", "base_url": url, **more.pop("openai", {})}
    prices = project.path / "prices.yaml"
    prices.write_text("- {model: teacher, date: 2026-01-31, source: 'https://x', input: 100, output: 1000, batch: 0.5}")
    budget = {"prices": str(prices), **more.pop("budget", {})}
    project.change(
        {
            "annotate.annotator": "openai",
            "annotate.openai": settings,
            "annotate.budget": budget,
            "annotate.language_model.responses": "kept/responses.db",
            **{f"annotate.{key}": value for key, value in more.items()},
        }
    )
    return project


def run(project: Project) -> dict[str, Any]:
    annotate.run(
        **STAGE["annotate"].given(project.params), captions=project.output("caption"), output=project.output("annotate")
    )
    return read_manifest(project.output("annotate"))


def everything(path: Path) -> dict[str, str]:
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def forecast(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run the dry run; return what it says, by the first word or two of each line."""
    capsys.readouterr()
    assert main(["annotate", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "Nothing was asked, and nothing was written."
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines[:-1] if "  " in line)  # type: ignore[misc]


# ---- what it cost ----


def kept_costs(project: Project) -> list[float | None]:
    """Return what each answer cost by the store of answers."""
    with ResponseStore(project.path / project.params.annotate.language_model.responses) as store:
        return [row["cost_usd"] for row in store.rows()]


def test_the_manifest_says_what_it_cost(project: Project, server: ChatServer) -> None:
    usage = run(asking(project, server.url))["usage"]
    assert usage["calls"] == 2 * PAIRS
    assert usage["cost_usd"] == pytest.approx(2 * PAIRS * (5 * 100 + 1 * 1000) / 1e6)
    assert 0 < usage["seconds"] < 60
    assert kept_costs(project) == [pytest.approx(1500 / 1e6)] * (2 * PAIRS)
    assert run(project)["usage"]["cost_usd"] == 0, "answers that are kept are free"


def test_a_run_again_that_only_has_questions_left_which_are_refused(project: Project, server: ChatServer) -> None:
    def fussy(request: Any, body: dict[str, Any]) -> Any:
        refused = zlib.crc32(body["messages"][-1]["content"].encode()) % 4 == 0
        return problem(400, "We do not speak of this.") if refused else teacher(request, body)

    server.behave = fussy
    asking(project, server.url, max_failure_rate=1.0)
    first = run(project)
    again = run(project)
    assert again["usage"]["calls"] == again["usage"]["failures"] == first["usage"]["failures"] > 5
    assert again["counts"] == first["counts"]


def test_an_unknown_price_is_not_nothing(project: Project, server: ChatServer) -> None:
    asking(project, server.url, budget={"prices": None})
    assert run(project)["usage"]["cost_usd"] is None
    assert kept_costs(project) == [None] * (2 * PAIRS)


def test_shares_add_up_what_they_cost(project: Project, server: ChatServer, tmp_path: Path) -> None:
    asking(project, server.url)
    shares = [tmp_path / "a", tmp_path / "b"]
    for number, share in enumerate(shares):
        annotate.run(
            **STAGE["annotate"].given(project.params),
            captions=project.output("caption"),
            output=share,
            shard=(number, 2),
        )
    merge_preferences.run(
        **STAGE["annotate"].given(project.params),
        captions=project.output("caption"),
        shards=shares,
        output=tmp_path / "merged",
    )
    usage = read_manifest(tmp_path / "merged")["usage"]
    assert usage["cost_usd"] == pytest.approx(2 * PAIRS * 1500 / 1e6)


# ---- budgets ----


def test_a_spent_budget_stops_with_what_is_kept_and_how_to_go_on(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(project, server.url, budget={"max_calls": 30})
    assert main(["annotate"]) == 2
    said = capsys.readouterr().err
    assert "The budget of 30 calls (annotate.budget.max_calls) is spent: 30 calls, 180 tokens, $0.045." in said
    assert "running the same command again" in said
    assert not project.output("annotate").exists()
    assert main(["annotate"]) == 2
    assert main(["annotate"]) == 0, "each run goes on where the last one ended"
    assert len(server.bodies) == 2 * PAIRS


def test_a_run_can_go_on_with_the_pairs_that_were_judged(project: Project, server: ChatServer) -> None:
    asking(project, server.url, budget={"max_calls": 30, "on_limit": "continue"}, max_failure_rate=0.0)
    manifest = run(project)
    judged = manifest["counts"]["pairs"]
    assert 15 <= judged <= 30
    assert manifest["notes"] == [
        f"{judged} of {PAIRS} pairs were judged: the budget of 30 calls (annotate.budget.max_calls) was reached."
    ]
    assert manifest["usage"]["calls"] == len(server.bodies) == 30
    assert manifest["usage"]["failures"] == 0
    made = project.output("annotate")
    preferences = read_preferences(made)
    assert len(preferences) == len(read_pairs(made)) == judged
    assert set(preferences.status) <= {"ok", "tie"}
    assert run(project)["counts"]["pairs"] >= judged, "a second run has its own budget"


def test_pairs_that_were_not_judged_do_not_count_as_done(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    advanced: list[int] = []
    monkeypatch.setattr("laurel.progress.progress", lambda *of: nullcontext(lambda n, free: advanced.append(n)))
    asking(project, server.url, budget={"max_calls": 30, "on_limit": "continue"})
    manifest = run(project)
    assert sum(advanced) == manifest["counts"]["pairs"] < PAIRS
    assert f"annotate: {manifest['notes'][0]}\n" in capsys.readouterr().err


def test_shares_divide_a_budget(project: Project, server: ChatServer, tmp_path: Path) -> None:
    asking(project, server.url, budget={"max_calls": 31, "on_limit": "continue"})
    shares = [tmp_path / "a", tmp_path / "b"]
    for number, share in enumerate(shares):
        annotate.run(
            **STAGE["annotate"].given(project.params),
            captions=project.output("caption"),
            output=share,
            shard=(number, 2),
        )
    assert [read_manifest(share)["usage"]["calls"] for share in shares] == [15, 16]
    merge_preferences.run(
        **STAGE["annotate"].given(project.params),
        captions=project.output("caption"),
        shards=shares,
        output=tmp_path / "merged",
    )
    notes = read_manifest(tmp_path / "merged")["notes"]
    assert [re.sub(r"^\d+", "n", note) for note in notes] == [
        f"n of 20 pairs of share {number} of 2 were judged: "
        f"the budget of {calls} calls (annotate.budget.max_calls) was reached."
        for number, calls in ((1, 15), (2, 16))
    ]


def test_a_budget_for_no_pair_at_all(project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]) -> None:
    asking(project, server.url, budget={"max_tokens": 10, "on_limit": "continue"})
    assert main(["annotate"]) == 2
    assert "No pair was judged. 0 of 40 pairs were judged: the budget of 10 tokens" in capsys.readouterr().err
    assert not server.bodies


def test_money_without_a_price_is_refused_before_the_first_call(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(project, server.url, budget={"max_cost": 1.0, "prices": None})
    assert main(["annotate"]) == 2
    assert f'the price of "teacher" at {server.url} is unknown' in capsys.readouterr().err
    assert not server.bodies


# ---- batches ----


def test_batches_give_the_labels_that_asking_one_by_one_gives(
    project: Project, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = run(asking(project, server.url))["digest"]
    monkeypatch.setattr("laurel.llm.openai_batch.time.sleep", lambda _: None)

    def answer(self: BatchAPI, line: dict[str, Any]) -> dict[str, Any]:
        body = json.loads(teacher(None, line["body"]).body)
        return {"custom_id": line["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}

    monkeypatch.setattr(BatchAPI, "_answer", answer)
    with batch_api() as api:
        project.change({"annotate.language_model.responses": "kept/others.db"})
        asking(project, api.url, openai={"mode": "batch"}, **{"language_model.responses": "kept/others.db"})
        manifest = run(project)
    assert len(api.batches) == 1
    answers = project.output("annotate") / "answers.parquet"
    assert manifest["counts"]["ok"] > 0
    assert answers.exists()
    assert live != "", "both ended"
    assert manifest["usage"]["cost_usd"] == pytest.approx(2 * PAIRS * 1500 / 1e6 / 2), "at half the price"
    assert kept_costs(project) == [pytest.approx(1500 / 1e6 / 2)] * (2 * PAIRS)


def test_batches_that_wait_are_told_of(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with batch_api() as api:
        api.patience = 10**9
        asking(project, api.url, openai={"mode": "batch"}, budget={"max_minutes": 0.02, "on_limit": "continue"})
        assert main(["annotate"]) == 2
        assert "No pair was judged. 0 of 40 pairs were judged: the budget of 0.02 minutes" in capsys.readouterr().err
        said = forecast(capsys)
        assert said["sent"] == f"{2 * PAIRS} more are in batches that wait to be fetched"
        assert said["calls"].startswith("0, ")
        project.change({"annotate.openai.mode": "live", "annotate.openai.retries": 0})
        assert "sent" not in forecast(capsys)
        assert main(["annotate"]) == 2
        assert f"{2 * PAIRS} questions to teacher are in batches that were sent before." in capsys.readouterr().err


# ---- the dry run ----


def test_a_dry_run_opens_no_connection_and_writes_no_file(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(asking(project, server.url, n_pairs=10))
    project.change({"annotate.n_pairs": PAIRS})
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked = len(server.bodies)
    gc.collect()  # the run's own connection to the store

    def connect(*_: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for url in (server.url, "https://api.example.org/v1"):
        asking(project, url)
        before = everything(project.path)
        forecast(capsys)
        assert everything(project.path) == before
    assert len(server.bodies) == asked


def test_a_dry_run_sees_what_another_process_is_writing(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(project, server.url)
    with ResponseStore(Path("kept/responses.db")) as store:
        run(project)
        assert Path("kept/responses.db-wal").stat().st_size > 0
        assert forecast(capsys)["answered"].startswith(f"{2 * PAIRS} of them")
        assert len(store) == 2 * PAIRS


def test_it_says_what_the_run_then_does(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(project, server.url, openai={"model": "teacher", "max_tokens": 100, "requests_per_minute": 60_000})
    said = forecast(capsys)
    assert said["annotator"].startswith("teacher (prompt motif ")
    assert said["pairs"] == str(PAIRS)
    assert said["questions"] == f"{2 * PAIRS} distinct (both orders, 1 vote each)"
    assert said["answered"] == "0 of them, in kept/responses.db"
    assert said["calls"].startswith(f"{2 * PAIRS}, ")
    assert "(estimated as bytes / 4)" in said["tokens in"]
    assert said["tokens out"] == f"{2 * PAIRS * 100:,} at most"
    assert said["minutes"] == "below 0.1 (requests_per_minute)"
    tokens = int(said["tokens in"].split()[0].replace(",", ""))
    most = (tokens * 100 + 2 * PAIRS * 100 * 1000) / 1e6
    assert said["money"] == f"${most:.2f} at most  (prices of 2026-01-31: https://x)"
    assert said["in batches"] == f"${most / 2:.2f} at most; up to 1,440 minutes for each round of batches"
    sent = [len(message["content"].encode()) for body in server.bodies for message in body["messages"]]
    assert not sent
    assert run(project)["usage"]["calls"] == 2 * PAIRS
    sent = [len(message["content"].encode()) for body in server.bodies for message in body["messages"]]
    assert tokens == pytest.approx(sum(sent) / 4, abs=1)

    said = forecast(capsys)
    assert said["answered"].startswith(f"{2 * PAIRS} of them")
    assert said["calls"].startswith("0, ")
    assert said["money"].startswith("$0.00")
    assert said["minutes"] == "0.0 (nothing is to be asked)"


def test_answers_that_are_kept_say_how_long_answers_are(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    run(asking(project, server.url))
    project.change({"annotate.n_pairs": 2 * PAIRS})
    said = forecast(capsys)
    calls = int(said["calls"].split(",")[0])
    assert 0 < calls < 4 * PAIRS
    assert said["tokens out"].startswith(f"{calls} if like the answers that are kept, ")
    assert "s an answer as before, 32 at once" in said["minutes"]
    assert said["money"].count("$") == 2
    project.change({"annotate.language_model.prompt": "chain_of_thought"})
    assert forecast(capsys)["tokens out"].endswith(" at most")
    assert "like the answers" not in forecast(capsys)["tokens out"], "another prompt has other answers"


def test_an_unknown_price_is_said_to_be_unknown(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    asking(project, "http://127.0.0.1:9/v1", budget={"prices": None, "max_cost": 1.0})
    said = forecast(capsys)
    assert said["money"] == "unknown"
    assert said["in batches"].startswith("unknown; ")
    assert said["minutes"] == "unknown (no limit is given, and no answer is kept to judge the pace by)"
    assert said["budget"] == "$1.00 cannot be enforced: the price is unknown (annotate.budget.prices)"


def test_it_says_which_limit_may_be_reached(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    asking(project, "http://127.0.0.1:9/v1", budget={"max_calls": 10})
    assert forecast(capsys)["budget"] == "max_calls 10: may be reached, and then: stop"
    asking(project, "http://127.0.0.1:9/v1", budget={"max_calls": 1000})
    assert forecast(capsys)["budget"] == "max_calls 1,000: suffices"


@pytest.mark.parametrize("annotator", ["embedding", "scripted"])
def test_annotators_that_ask_nobody(project: Project, capsys: pytest.CaptureFixture[str], annotator: str) -> None:
    project.change({"annotate.annotator": annotator})
    assert main(["annotate", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said == (
        f"{PAIRS} pairs. The annotator {annotator} works in this process: no calls, no tokens, no cost.\n\n"
        "Nothing was asked, and nothing was written.\n"
    )
    assert not project.output("annotate").exists()


def test_a_model_in_this_process(
    project: Project, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_tiny_llama(tmp_path / "model", max_position_embeddings=2048)
    project.change(
        {
            "annotate.annotator": "huggingface",
            "annotate.huggingface": {"model": str(model), "device": "cpu"},
            "annotate.language_model.prompt": "answer_only",
            "annotate.language_model.responses": "kept/responses.db",
        }
    )
    said = forecast(capsys)
    assert said["money"] == "$0.00, $0.00 at most"
    assert said["tokens out"] == "0 if like the answers that are kept, 0 at most"
    assert "by the model's tokenizer" in said["tokens in"]
    assert "in batches" not in said
    usage = run(project)["usage"]
    assert said["tokens in"].startswith(f"{usage['input_tokens']:,} ")
    assert usage["cost_usd"] == 0
    assert set(kept_costs(project)) == {0.0}
    assert forecast(capsys)["calls"].startswith("0, ")
    project.change({"annotate.huggingface.model": "nobody/not-here"})
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said = forecast(capsys)
    assert said["answered"].startswith("0 of them")
    assert "estimated" in said["tokens in"]


def test_an_ensemble_has_an_estimate_for_each_member(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    asking(project, "http://127.0.0.1:9/v1")
    members = [{"annotator": "embedding"}, {"annotator": "openai"}]
    other = {"annotator": "openai", "openai": {"model": "other"}}
    project.change({"annotate.annotator": "ensemble", "annotate.ensemble": {"members": [*members, other]}})
    assert main(["annotate", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert [said.count(f"member {number} of 3\n") for number in (1, 2, 3)] == [1, 1, 1]
    assert said.count(f"{2 * PAIRS} distinct") == 2
    assert re.findall(r"annotator +(\w+) ", said) == ["embedding", "teacher", "other"]


def test_pairs_that_depend_on_labels_are_said_to_be_stand_ins(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(project, "http://127.0.0.1:9/v1", sampler="ranking")
    assert main(["annotate", "--dry-run"]) == 0
    assert "The sampler ranking goes by the labels" in capsys.readouterr().out
