"""What asking costs: budgets, prices and batches, against a server on this machine."""

from __future__ import annotations

import json
import re
import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from batch_api import BatchAPI, batch_api
from chat_server import ChatServer, problem

from laurel.cli.app import main
from laurel.data.manifest import read_manifest
from laurel.data.preferences import read_pairs, read_preferences
from priced_project import PAIRS, asking, forecast, kept_costs, run, teacher
from shares import annotate_in_shares, merge_shares
from tiny_project import Project


def test_the_manifest_says_what_it_cost(project: Project, server: ChatServer) -> None:
    usage = run(asking(project, server.url))["usage"]
    assert usage["calls"] == 2 * PAIRS
    assert usage["cost_usd"] == pytest.approx(2 * PAIRS * (5 * 100 + 1 * 1000) / 1e6)
    assert 0 < usage["seconds"] < 60
    assert kept_costs(project) == [pytest.approx(1500 / 1e6)] * (2 * PAIRS)
    assert run(project)["usage"]["cost_usd"] == 0, "answers that are kept are free"


def test_a_repeated_run_asks_only_the_refused_questions_again(project: Project, server: ChatServer) -> None:
    def fussy(request: Any, body: dict[str, Any]) -> Any:
        refused = zlib.crc32(body["messages"][-1]["content"].encode()) % 4 == 0
        return problem(400, "We do not speak of this.") if refused else teacher(request, body)

    server.behave = fussy
    asking(project, server.url, max_failure_rate=1.0)
    first = run(project)
    again = run(project)
    assert again["usage"]["calls"] == again["usage"]["failures"] == first["usage"]["failures"] > 5
    assert again["counts"] == first["counts"]


def test_an_unknown_price_is_not_shown_as_zero(project: Project, server: ChatServer) -> None:
    asking(project, server.url, budget={"prices": None})
    assert run(project)["usage"]["cost_usd"] is None
    assert kept_costs(project) == [None] * (2 * PAIRS)


def test_shares_add_up_what_they_cost(project: Project, server: ChatServer, tmp_path: Path) -> None:
    asking(project, server.url)
    merged = merge_shares(project, annotate_in_shares(project, tmp_path), tmp_path / "merged")
    usage = read_manifest(merged)["usage"]
    assert usage["cost_usd"] == pytest.approx(2 * PAIRS * 1500 / 1e6)


def test_a_spent_budget_stops_with_what_is_kept_and_how_to_go_on(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asking(project, server.url, budget={"max_calls": 30})
    assert main(["annotate"]) == 2
    said = capsys.readouterr().err
    assert "The budget of 30 calls (annotate.budget.max_calls) is spent: 30 calls, 180 tokens, $0.045." in said
    assert "Run the same command again" in said
    assert not project.output("annotate").exists()
    assert main(["annotate"]) == 2
    assert main(["annotate"]) == 0, "each run goes on where the last one ended"
    assert len(server.bodies) == 2 * PAIRS


def test_a_run_can_continue_with_the_judged_pairs(project: Project, server: ChatServer) -> None:
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
    shares = annotate_in_shares(project, tmp_path)
    assert [read_manifest(share)["usage"]["calls"] for share in shares] == [15, 16]
    notes = read_manifest(merge_shares(project, shares, tmp_path / "merged"))["notes"]
    assert [re.sub(r"^\d+", "n", note) for note in notes] == [
        f"n of 20 pairs of shard {number} of 2 were judged: "
        f"the budget of {calls} calls (annotate.budget.max_calls) was reached."
        for number, calls in ((1, 15), (2, 16))
    ]


def test_a_budget_too_small_for_one_pair_is_refused(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_waiting_batches_are_reported(
    project: Project, server: ChatServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with batch_api() as api:
        api.patience = 10**9
        asking(project, api.url, openai={"mode": "batch"}, budget={"max_minutes": 0.02, "on_limit": "continue"})
        assert main(["annotate"]) == 2
        assert "No pair was judged. 0 of 40 pairs were judged: the budget of 0.02 minutes" in capsys.readouterr().err
        said = forecast(capsys)
        awaited = f"{2 * PAIRS} more are in batches that are not fetched yet; their calls and cost, $"
        assert said["sent"].startswith(awaited)
        assert said["sent"].endswith(" at most, count when they are")
        assert said["calls"].startswith("0, ")
        assert said["budget"] == "max_minutes 0.02: may be reached, and then: continue"
        for limit in ({"max_calls": 30}, {"max_tokens": 400}, {"max_cost": 0.01}):
            project.change({"annotate.budget": {**limit, "prices": "prices.yaml"}})
            assert "may be reached, and then: stop" in forecast(capsys)["budget"], "the run counts them, too"
        project.change({"annotate.openai.mode": "live", "annotate.openai.retries": 0})
        said = forecast(capsys)
        assert "sent" not in said
        assert said["twice"].startswith(f"{2 * PAIRS} of them are in batches that were sent before, so they are paid f")
        assert main(["annotate"]) == 2
        assert f"{2 * PAIRS} questions to teacher are in batches that were sent before." in capsys.readouterr().err
