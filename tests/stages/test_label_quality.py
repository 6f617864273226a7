"""What the annotate stage says about its labels, with a chat server that has planted faults."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest
from aiohttp import web
from chat_server import ChatServer, chat_server, completion, problem

from laurel.data.captions import read_segments
from laurel.data.gold import GoldFile
from laurel.data.manifest import read_manifest
from laurel.data.preferences import read_pairs, read_preferences
from laurel.data.sample import read_sample
from laurel.data.show import describe_directory
from laurel.envs import adapter_for
from laurel.errors import AnnotationError, DataError, ParamsError
from laurel.feedback.references import task_of
from laurel.stages.preflight import check_run
from laurel.tracking.server import connect
from shares import annotate_in_shares, merge_shares
from tiny_project import UNTRACKED, Project, lasting_content, read_json


def teacher(_: Any, body: dict[str, Any]) -> Any:
    """Name the first text unless the second alone speaks of the goal; stay unreadable where a wall comes first."""
    first, second = re.findall(r'(?m)^Text [12]: "(.*)"$', body["messages"][1]["content"])
    if "wall" in first:
        return web.json_response(completion("<script>alert(1)</script> Hm."))
    best = 2 if "goal" in second and "goal" not in first else 1
    return web.json_response(completion(json.dumps({"analysis": f"<b>{first}</b>", "best_description": best})))


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as server:
        server.behave = teacher
        yield server


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    return finished.copy(tmp_path / "p", UNTRACKED, without=["annotate"])


@pytest.fixture
def asking(project: Project, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("LAUREL_ALLOW_RESPONSES", str(project.path / "responses.db"))
    project.change(
        {
            "annotate.annotator": "openai",
            "annotate.openai": {"model": "teacher", "base_url": server.url},
            "annotate.language_model.responses": str(project.path / "responses.db"),
            "annotate.n_pairs": 40,
            "annotate.max_failure_rate": 1.0,
            "annotate.gates": {"min_parse_rate": None},  # the teacher is unreadable now and then
        }
    )
    return project


def quality(project: Project) -> dict[str, Any]:
    return read_json(project.output("annotate") / "quality.json")


def test_an_encoder_has_no_answers_to_measure(project: Project) -> None:
    project.run("annotate")
    found = quality(project)
    assert set(found) == {"annotator", "tie_rate", "intransitivity", "oracle"}
    assert found["annotator"] == read_preferences(project.output("annotate")).annotator
    assert found["intransitivity"]["value"] == 0, "it goes by one number a text"
    assert found["oracle"]["agreement"]["value"] > 0.5
    assert 0 <= found["oracle"]["brier"] <= 0.25
    sample = read_sample(project.output("annotate"))
    assert len(sample) == min(50, len(read_pairs(project.output("annotate"))))
    assert all(pair["answers"] == [] for pair in sample)


def test_a_chat_model_is_measured_by_its_answers(asking: Project) -> None:
    asking.run("annotate")
    out, found = asking.output("annotate"), quality(asking)
    pairs = len(read_pairs(out))
    assert found["answers"] == 2 * pairs
    assert found["position_bias"]["ci95"][0] > 0.5
    assert 0 < found["parse_rate"]["value"] < 1
    assert found["failure_rate"]["value"] == 0
    preferences = read_preferences(out)
    both = preferences.swap_consistent >= 0
    assert found["swap_consistency"]["of"] == both.sum()
    assert found["swap_consistency"]["value"] == pytest.approx((preferences.swap_consistent[both] == 1).mean())
    sample = read_sample(out)
    assert sample[0]["swap_consistent"] is False, "those in doubt come first"
    raw = [answer["answer"] for pair in sample for answer in pair["answers"]]
    assert {answer["answer_p_first"] for pair in sample for answer in pair["answers"]} == {0.0, 1.0, None}
    assert any("<b>" in text for text in raw)
    assert any(text.startswith("<script>") for text in raw)
    texts = read_segments(asking.output("caption")).texts
    drawn = read_pairs(out)
    for pair in sample:
        assert pair["first"] == texts[drawn.first[pair["pair"]]]
        assert pair["status"] == preferences.status[pair["pair"]]


def test_shares_give_the_same_message_as_the_whole(asking: Project, tmp_path: Path) -> None:
    shares = annotate_in_shares(asking, tmp_path, 3)
    (asking.path / "responses.db").rename(asking.path / "elsewhere.db")  # joined on a machine without the answers
    merged = merge_shares(asking, shares, tmp_path / "merged")
    (asking.path / "elsewhere.db").rename(asking.path / "responses.db")
    asking.run("annotate")
    whole = lasting_content(asking.output("annotate"))
    assert lasting_content(merged) == whole
    assert {"quality.json", "sample.parquet"} <= set(whole)


SECRET = "sk-of-nobody-0123456789"


def faulty(_: Any, body: dict[str, Any]) -> Any:
    """Refuse some questions in words that hold the key and a tag; answer others in ways that cannot be read."""
    asked = body["messages"][1]["content"]
    match sum(asked.encode()) % 6:
        case 0:
            return problem(400, f"We say <b>no</b> to {SECRET} in request r{len(asked)}")
        case 1:
            return web.json_response(completion('{"analysis": "I think', finish_reason="length"))
        case 2:
            return web.json_response(completion(" \n"))
        case 3:
            return web.json_response(completion("Hm.", finish_reason="content_filter"))
    return teacher(_, body)


REASONS = {
    ("failed", "refused with status 400: We say <b>no</b> to *** in request r_"),
    ("unread", "it was cut off at its token limit (max_tokens)"),
    ("unread", "it is empty"),
    ("unread", "the server's content filter withheld it (content_filter)"),
    ("unread", "it has no answer in the requested form"),
}


def sums(out: Path) -> dict[tuple[str, str], int]:
    found = {}
    for entry in read_json(out / "quality.json")["missing"]:
        found[entry["verdict"], re.sub(r"request r\d+", "request r_", entry["reason"])] = entry["answers"]
    return found


def test_reasons_for_missing_answers_are_stored_and_reported(
    asking: Project, server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.run("annotate")
    assert {verdict for verdict, _ in sums(asking.output("annotate"))} == {"unread"}
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("LAUREL_ALLOW_KEYS", f"OPENAI_API_KEY@{urlsplit(server.url).netloc}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'm.db'}")
    server.behave = faulty
    monkeypatch.setenv("LAUREL_ALLOW_RESPONSES", str(tmp_path / "new.db"))
    asking.change({"annotate.language_model.responses": str(tmp_path / "new.db"), "tracking.enabled": True})
    asking.run("annotate")
    out = asking.output("annotate")
    found = sums(out)
    assert set(found) == REASONS
    answers = Counter(pq.read_table(out / "answers.parquet")["verdict"].to_pylist())
    for verdict in ("failed", "unread"):
        assert sum(count for (what, _), count in found.items() if what == verdict) == answers[verdict] > 0
    manifest = read_manifest(out)
    assert manifest["usage"]["failures"] == answers["failed"]
    client, _ = connect("laurel")
    tag = client.get_run(manifest["mlflow_run_id"]).data.tags["missing_answers"]
    assert "no answer" in tag
    assert "it is empty" in tag
    said = r"no answer, \d+ times: refused with status 400: We say <b>no</b> to \*\*\*"
    assert re.search(said, describe_directory(out))
    files = [file for file in [*asking.path.rglob("*"), *tmp_path.rglob("*")] if file.is_file()]
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []

    asking.change({"tracking.enabled": False})
    shares = annotate_in_shares(asking, tmp_path)
    (tmp_path / "new.db").rename(tmp_path / "elsewhere.db")
    assert sums(merge_shares(asking, shares, tmp_path / "merged")) == found
    (tmp_path / "elsewhere.db").rename(tmp_path / "new.db")
    asking.change({"annotate.max_failure_rate": 0.0})
    words = r"such as .* \(annotate\.max_failure_rate\)\. Reasons: .* \d+ times: it .*; \d+ for other reasons\. "
    words += "If the server was away, run the same command again: only the missing ones are asked for"
    with pytest.raises(AnnotationError, match=words):
        asking.run("annotate")


def test_a_failed_gate_stops_the_run_and_loses_no_answer(asking: Project, server: ChatServer) -> None:
    asking.change({"annotate.gates": {"max_position_bias": 0.05, "min_agreement": 0.1, "min_parse_rate": None}})
    words = r"\d+\.\d% of decided answers preferred the text shown first \(95% interval .*annotate\.gates\.max_position"
    with pytest.raises(AnnotationError, match=words):
        asking.run("annotate")
    assert not asking.output("annotate").exists()
    asked = len(server.bodies)
    refused = asking.output("annotate").with_name("preferences-refused")
    assert read_json(refused / "quality.json")["gates"]["position_bias"]["passed"] is False
    assert len(read_pairs(refused, "annotate-refused")) == len(read_preferences(refused, "annotate-refused")) > 0
    with pytest.raises(DataError, match="annotate-refused"):
        read_preferences(refused)
    asking.change({"annotate.gates": {"max_position_bias": None, "min_parse_rate": None}})
    asking.run("annotate")
    assert len(server.bodies) == asked
    assert not refused.exists()


def always_first(_: Any, body: dict[str, Any]) -> Any:
    return web.json_response(completion('{"analysis": "", "best_description": 1}'))


def unwilling(_: Any, body: dict[str, Any]) -> Any:
    """Refuse all questions but those about the goal."""
    first, second = re.findall(r'(?m)^Text [12]: "(.*)"$', body["messages"][1]["content"])
    if "goal" in first + second:
        return web.json_response(completion(json.dumps({"best_description": 1 if first > second else 2})))
    return web.json_response(completion("I cannot help with that."))


LONG = {"env.id": "MiniGrid-DoorKey-5x5-v0", "caption.enumerate": True, "annotate.gates": {}}
"""An environment with many captions, and no gate but those that are there by default."""


@pytest.fixture
def many(asking: Project) -> Project:
    asking.change({**LONG, "annotate.max_failure_rate": 0.05, "annotate.n_pairs": 60})
    asking.run("collect", "caption")
    return asking


def test_total_position_bias_is_reported_first(many: Project, server: ChatServer, tmp_path: Path) -> None:
    server.behave = always_first
    with pytest.raises(AnnotationError) as caught:
        many.run("annotate")
    first = str(caught.value).splitlines()[0]
    assert first.startswith("100.0% of decided answers preferred the text shown first (95% interval ")
    assert "annotate.gates.max_position_bias" in first
    assert "annotate.embedding" not in str(caught.value), "it is not in use"
    refused = many.output("annotate").with_name("preferences-refused")
    assert f"laurel show {refused}" in str(caught.value)
    assert "gate: 10% to 90%, not passed: answers that named the text shown first" in describe_directory(refused)
    found = read_json(refused / "quality.json")
    asked = len(server.bodies)
    many.change({"annotate.gates": {"max_position_bias": None}})
    with pytest.raises(
        AnnotationError, match=r"^100\.0% of decided answers .*depend on the order.* None of \d+"
    ) as caught:
        many.run("annotate")
    assert "annotate.language_model.prompt" in str(caught.value)
    assert "annotate.embedding" not in str(caught.value)
    assert len(server.bodies) == asked, "nothing is asked again"

    many.change({"annotate.gates": {}})
    shares = annotate_in_shares(many, tmp_path)
    with pytest.raises(AnnotationError, match=r"^100\.0% of decided answers preferred the text shown first"):
        merge_shares(many, shares, tmp_path / "merged")
    assert read_json(tmp_path / "merged-refused" / "quality.json") == found


def test_refusals_are_reported(many: Project, server: ChatServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.behave = unwilling
    with pytest.raises(AnnotationError, match=r"answers declined to say which .*annotate\.gates\.max_abstain_rate"):
        many.run("annotate")
    many.change({"annotate.gates": {"max_abstain_rate": None}})
    many.run("annotate")
    words = r"answers declined to say which is better \(95% interval .*far from at most 10"
    assert re.search(words, capsys.readouterr().err)
    assert any(re.search(words, note) for note in read_manifest(many.output("annotate"))["notes"])


def test_missing_answers_never_make_a_biased_model_certain(many: Project, server: ChatServer) -> None:
    """It names the first text, and a fifth of its answers are missing: each such pair was a certain label."""

    def lossy(request: Any, body: dict[str, Any]) -> Any:
        lost = zlib.crc32(body["messages"][1]["content"].encode()) % 5 == 0
        return problem(400, "no") if lost else always_first(request, body)

    server.behave = lossy
    many.change({"annotate.gates": {"max_position_bias": None}})
    words = r"\d+ had too few answers, such as in .* orders, and [\d.]+% of \d+ answers are missing.*at most 5\.0%"
    with pytest.raises(AnnotationError, match=words):
        many.run("annotate")
    many.change({"annotate.max_failure_rate": 1.0})
    with pytest.raises(AnnotationError, match=r"None of \d+ pairs has a preference \(\d+ ties, 0 abstained, [1-9]"):
        many.run("annotate")
    refused = read_preferences(many.output("annotate").with_name("preferences-refused"), "annotate-refused")
    counts = refused.status_counts()
    assert counts["ok"] == 0, "no label of a model that reads nothing"
    assert counts["incomplete"] > 10


def test_missing_answers_are_counted_by_answers_too(many: Project, server: ChatServer) -> None:
    """Where each order has votes enough left, pairs alone would not tell."""

    def lossy(_: Any, body: dict[str, Any]) -> Any:
        first, second = re.findall(r'(?m)^Text [12]: "(.*)"$', body["messages"][1]["content"])
        if body.get("seed") == 2:
            return problem(400, "no")
        return web.json_response(completion(json.dumps({"best_description": 1 if first > second else 2})))

    server.behave = lossy
    many.change({"annotate.language_model.votes": 3, "annotate.openai.temperature": 1.0, "annotate.n_pairs": 10})
    with pytest.raises(AnnotationError, match=r"0\.0% of 10 pairs have no label .*33\.3% of 60 answers are missing"):
        many.run("annotate")


def test_a_gate_that_does_not_apply_is_noted(project: Project) -> None:
    project.change({"annotate.gates": {"min_swap_consistency": 0.5}})
    project.run("annotate")
    (note,) = read_manifest(project.output("annotate"))["notes"]
    assert note.startswith("annotate.gates.min_swap_consistency was not checked")


def test_a_gate_that_needs_gold_labels_is_refused_without_any(project: Project) -> None:
    """All labels would be refused, after they were paid for."""
    project.change({"annotate.gates": {"min_gold_pairs": 2}})
    for checked in (lambda: check_run(project.params), lambda: project.run("annotate")):
        with pytest.raises(ParamsError, match=r"min_gold_pairs is 2, but annotate\.gold names no file of gold labels"):
            checked()
    check_run(project.params, gold=False)  # captions, which pairs to label are made of


def test_gold_is_compared_with_and_is_an_input(project: Project) -> None:
    path = project.path / "gold.jsonl"
    project.change({"annotate.gold": str(path), "annotate.gates": {"min_gold_pairs": 2}})
    with pytest.raises(DataError, match=r"gold\.jsonl: no such file, but annotate\.gold names it"):
        project.run("annotate")
    params = project.params
    gold = GoldFile(path, task_of(params.annotate, adapter_for(params.env)))
    texts = read_segments(project.output("caption")).texts
    gold.add(texts[0], texts[1], "first", "uniform")
    with pytest.raises(AnnotationError, match="at least 2 are required"):
        project.run("annotate")
    for other in range(2, len(texts)):
        gold.add(texts[0], texts[other], "first", "uniform")
    project.run("annotate")
    found = quality(project)
    assert found["gold_labels"] == len(texts) - 1
    assert found["gold"]["pairs"] == len(texts) - 1
    first = read_manifest(project.output("annotate"))
    gold.add(texts[1], texts[2], "tie", "uncertain")
    project.run("annotate")
    again = read_manifest(project.output("annotate"))
    assert quality(project)["gold_uncertain"]["equal"] == 1
    assert again["inputs"]["captions"] == first["inputs"]["captions"]
    assert again["inputs"]["gold"] != first["inputs"]["gold"]


def test_gold_for_another_goal_does_not_count(project: Project) -> None:
    path = project.path / "gold.jsonl"
    params = project.params
    texts = read_segments(project.output("caption")).texts
    GoldFile(path, task_of(params.annotate, adapter_for(params.env))).add(texts[0], texts[1], "first", "uniform")
    project.change({"annotate.gold": str(path), "annotate.embedding.goal": "Walk into walls."})
    project.run("annotate")
    assert "gold" not in quality(project)
    (note,) = read_manifest(project.output("annotate"))["notes"]
    assert note == f"{path}: ignored 1 lines, for another environment or goal."
