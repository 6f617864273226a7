"""`laurel annotate --dry-run`: what a run would ask and cost."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_server import ChatServer
from tiny_llama import make_tiny_llama

from laurel.cli.app import main
from laurel.feedback.annotator_kind import AnnotatorKind
from laurel.llm.responses import ResponseStore
from priced_project import PAIRS, asking, forecast, kept_costs, run, teacher
from tiny_project import Project


def everything(path: Path) -> dict[str, str]:
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


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


def test_the_dry_run_matches_the_run(project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert said["minutes"] == "0.0 (no questions are left)"


def test_in_the_mode_batch_the_money_is_that_of_batches(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    asking(project, "http://127.0.0.1:9/v1", openai={"mode": "batch"}, budget={"max_cost": 100.0})
    said = forecast(capsys)
    most = (int(said["tokens in"].split()[0].replace(",", "")) * 100 + 2 * PAIRS * 512 * 1000) / 1e6
    assert said["money"] == f"${most / 2:.2f} at most in batches  (prices of 2026-01-31: https://x)"
    assert said["minutes"] == "up to 1,440 for each round of batches"
    assert said["live"].startswith(f"${most:.2f} at most; minutes unknown (")
    assert "in batches" not in said
    assert said["budget"] == "max_cost $100.00: suffices"


def test_stored_answers_give_the_expected_answer_length(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    run(asking(project, server.url))
    project.change({"annotate.n_pairs": 2 * PAIRS})
    said = forecast(capsys)
    calls = int(said["calls"].split(",")[0])
    assert 0 < calls < 4 * PAIRS
    assert said["tokens out"].startswith(f"{calls} if like the stored answers, ")
    assert "s an answer as before, 32 at once" in said["minutes"]
    assert said["money"].count("$") == 2
    project.change({"annotate.language_model.prompt": "chain_of_thought"})
    assert forecast(capsys)["tokens out"].endswith(" at most")
    assert "like the stored answers" not in forecast(capsys)["tokens out"], "another prompt has other answers"


def test_the_most_counts_each_answer_as_the_longest_of_those_stored(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that does not keep to max_tokens, such as one that counts its reasoning elsewhere."""

    lengths = itertools.cycle([900, 300])

    def talkative(request: Any, body: dict[str, Any]) -> web.Response:
        answer = json.loads(teacher(request, body).body)
        return web.json_response({**answer, "usage": {"prompt_tokens": 5, "completion_tokens": next(lengths)}})

    server.behave = talkative
    run(asking(project, server.url, openai={"model": "teacher", "max_tokens": 100}))
    project.change({"annotate.n_pairs": 2 * PAIRS})
    said = forecast(capsys)
    usual, most = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+(?= if| at most)", said["tokens out"]))
    assert most == 900 * int(said["calls"].split(",")[0])
    assert most == pytest.approx(1.5 * usual, rel=0.1)


def test_an_unknown_price_is_reported_as_unknown(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    asking(project, "http://127.0.0.1:9/v1", budget={"prices": None, "max_cost": 1.0})
    said = forecast(capsys)
    assert said["money"] == "unknown"
    assert said["in batches"].startswith("unknown; ")
    assert said["minutes"] == "unknown (no rate limit is set, and no stored answer shows the speed)"
    assert (
        said["budget"]
        == "$1.00 cannot be enforced: the price is unknown (annotate.budget.prices), so nothing will be asked"
    )


def test_it_says_which_limit_may_be_reached(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    asking(project, "http://127.0.0.1:9/v1", budget={"max_calls": 10})
    assert forecast(capsys)["budget"] == "max_calls 10: may be reached, and then: stop"
    asking(project, "http://127.0.0.1:9/v1", budget={"max_calls": 1000})
    assert forecast(capsys)["budget"] == "max_calls 1,000: suffices"


def test_all_judges_and_label_sets_are_counted_and_share_the_budget(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(project, "http://127.0.0.1:9/v1", budget={"max_calls": 3 * PAIRS})
    alone = forecast(capsys)
    assert alone["calls"].startswith(f"{2 * PAIRS}, ")
    project.change({"annotate.feedback_seeds": 2})
    both = forecast(capsys)
    assert both["pairs"].split(",")[0] == f"{2 * PAIRS}"
    most = int(both["calls"].split(",")[0])
    assert 3 * PAIRS < most < 4 * PAIRS, "pairs that both sets draw are asked once"
    assert both["budget"] == f"max_calls {3 * PAIRS}: may be reached, and then: stop"
    other = {"openai": {"model": "other", "base_url": "http://127.0.0.1:9/v1"}}
    project.change({"annotate.feedback_seeds": 1, "annotate.judges": {"other": other}})
    assert forecast(capsys) == alone, "no arm needs the other judge"
    project.change({"rewards": {"theirs": {"kind": "preference", "judge": "other"}}})
    project.change({"arms": {"extrinsic": {}, "preference": {}, "theirs": {"reward": "theirs"}}})
    said = forecast(capsys)
    assert said["calls"].startswith(f"{4 * PAIRS}, ")
    assert said["budget"] == f"max_calls {3 * PAIRS}: may be reached, and then: stop"
    project.change({"arms": {"extrinsic": {}, "theirs": {"reward": "theirs"}}})
    said = forecast(capsys)
    assert said["annotator"].startswith("other (prompt ")
    assert said["budget"] == f"max_calls {3 * PAIRS}: suffices"
    project.change({"annotate.judges": {"other": {"annotator": "embedding"}}})
    assert forecast(capsys) == {}, "the only judge that is needed works in this process"


def test_the_dry_run_of_two_judges_and_label_sets_matches_the_run(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"other": {"openai": {"model": "other", "base_url": server.url}}}
    asking(project, server.url, feedback_seeds=2, judges=other)
    project.change({"rewards": {"theirs": {"kind": "preference", "judge": "other"}}})
    project.change({"arms": {"extrinsic": {}, "preference": {}, "theirs": {"reward": "theirs"}}})
    most = int(forecast(capsys)["calls"].split(",")[0])
    assert run(project)["usage"]["calls"] == most
    assert forecast(capsys)["calls"].startswith("0, ")


def test_members_of_an_ensemble_share_the_budget(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    members = [{"openai": {"model": name, "base_url": "http://127.0.0.1:9/v1"}} for name in ("a", "b", "a")]
    asking(project, "http://127.0.0.1:9/v1", budget={"max_calls": 3 * PAIRS})
    members = [{"annotator": "openai", **member} for member in members]
    project.change({"annotate.annotator": "ensemble", "annotate.ensemble": {"members": members}})
    said = forecast(capsys)
    assert said["calls"].startswith(f"{4 * PAIRS}, "), "the third asks what the first has asked"
    assert said["budget"] == f"max_calls {3 * PAIRS}: may be reached, and then: stop"


def test_without_an_arm_that_needs_labels_nothing_is_asked(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.change({"arms": ["extrinsic"]})
    assert main(["annotate", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("No arm has a reward learned from preferences, so nothing is asked")


def test_a_judge_without_an_estimate_is_not_said_to_cost_nothing(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnnotatorKind, "estimates", False)
    project.change({"annotate.annotator": "embedding"})
    assert main(["annotate", "--dry-run"]) == 0
    assert f"{PAIRS} pairs. The annotator embedding does not estimate its cost.\n" in capsys.readouterr().out
    (project.path / "grid.yaml").write_text("models: [{name: odd, annotator: embedding}]\n")
    assert main(["annotate", "compare", "--grid", "grid.yaml", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "| odd   | unknown   | unknown | unknown | unknown   | unknown    | unknown | unknown |" in said
    assert "embedding does not estimate its calls and cost." in said


@pytest.mark.parametrize("annotator", ["embedding", "scripted"])
def test_annotators_without_questions(project: Project, capsys: pytest.CaptureFixture[str], annotator: str) -> None:
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
    assert said["tokens out"] == "0 if like the stored answers, 0 at most"
    assert "by the model's tokenizer" in said["tokens in"]
    assert "in batches" not in said
    assert "too long" not in said
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 64}))
    assert re.fullmatch(r"some questions get no .* has \d+ tokens, .* takes 64", forecast(capsys)["too long"])
    (model / "config.json").write_text(json.dumps(config))
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
    assert "The sampler ranking depends on labels" in capsys.readouterr().out
