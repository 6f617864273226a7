"""What a judge calls boring beside what: the words decide, and a chat model is asked about every two tasks once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chat_server import chat_server

from laurel.data.usage import UsageNote
from laurel.envs import adapter_for
from laurel.envs.tasks import TasksAdapter, tasks_of
from laurel.errors import AnnotationError, EnvError, ParamsError
from laurel.feedback.interest import boring, check, estimate
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams

ALIKE, OTHER = ("MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-6x6-v0"), "MiniGrid-DoorKey-5x5-v0"


@pytest.fixture(scope="module")
def tasks() -> TasksAdapter:
    return tasks_of(adapter_for(EnvParams(id="laurel/Tasks-v0", kwargs={"tasks": [*ALIKE, OTHER]})), "here")


@pytest.mark.parametrize(
    "annotate", [{"annotator": "scripted"}, {"annotator": "embedding", "embedding": {"model": "characters"}}]
)
def test_tasks_with_similar_goals_are_boring(annotate: dict[str, Any], tasks: TasksAdapter, tmp_path: Path) -> None:
    found, account = boring(tasks, AnnotateParams.model_validate(annotate), "main", UsageNote(tmp_path / "note.json"))
    assert found.tolist() == [[False, True, False], [True, False, False], [False] * 3]
    assert account == {}


def test_a_chat_model_is_asked_about_every_two_tasks_once(
    tasks: TasksAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def answer(body: dict[str, Any]) -> tuple[str, list[str], str]:
        question = body["messages"][-1]["content"]
        done, other = re.findall(r'"MiniGrid-(\w+)-', question)
        return question, [], "No." if done == other else "Yes."

    with chat_server() as server:
        server.plan = answer
        model = {"annotator": "openai", "openai": {"model": "tiny", "base_url": server.url}}
        params = AnnotateParams.model_validate({"judges": {"large": model}})
        told = "tiny is asked about 6 pairs of tasks: 6 calls at most without follow-ups, cost unknown"
        assert estimate(tasks, params, "large") == told
        voting = AnnotateParams.model_validate({"judges": {"large": {**model, "language_model": {"votes": 3}}}})
        assert "6 pairs of tasks: 18 calls at most" in str(estimate(tasks, voting, "large"))
        assert not server.bodies
        found, account = boring(tasks, params, "large", UsageNote(tmp_path / "note.json"))
        assert found.tolist() == [[False, True, False], [True, False, False], [False] * 3]
        assert (account["model"], account["states"], account["unread"], account["calls"]) == ("tiny", 6, 0, 6)
        assert boring(tasks, params, "large", UsageNote(tmp_path / "note.json"))[1]["calls"] == 0, "answers are kept"
        assert len(server.bodies) == 6


def test_an_answer_that_cannot_be_read_calls_no_task_boring(
    tasks: TasksAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def answer(body: dict[str, Any]) -> tuple[str, list[str], str]:
        asked = "".join(message["content"] for message in body["messages"])
        done, other = re.findall(r'"MiniGrid-(\w+)-', asked)
        return asked, [], "Hm." if done == other else "Yes."

    with chat_server() as server:
        server.plan = answer
        model = {"annotator": "openai", "openai": {"model": "tiny", "base_url": server.url}, "max_failure_rate": 0.5}
        found, account = boring(tasks, AnnotateParams.model_validate(model), "main", UsageNote(tmp_path / "note.json"))
    assert not found.any()
    assert account["unread"] == 2


def test_answers_of_no_use_are_noted_as_paid(
    tasks: TasksAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    note = UsageNote(tmp_path / "note.json")
    with chat_server() as server:
        server.plan = lambda body: (str(body["messages"]), [], "Hm.")
        model = {"annotator": "openai", "openai": {"model": "tiny", "base_url": server.url}}
        with pytest.raises(AnnotationError, match="of 6 answers 6 could not be read"):
            boring(tasks, AnnotateParams.model_validate(model), "main", note)
        (usage,) = note.read().values()
        assert usage["calls"] == len(server.bodies) == 12, "each with a follow-up"


def test_what_cannot_say_so_is_refused(tasks: TasksAdapter) -> None:
    with pytest.raises(ParamsError, match=r"agent\.curriculum\.interest is large, but must be one of main"):
        check(tasks, AnnotateParams(), "large")
    members = {"members": [{"annotator": "scripted"}, {"annotator": "embedding"}]}
    ensemble = AnnotateParams.model_validate({"annotator": "ensemble", "ensemble": members})
    with pytest.raises(AnnotationError, match="the annotator ensemble judges pairs, and cannot compare tasks"):
        check(tasks, ensemble, "main")
    with pytest.raises(EnvError, match="FrozenLake-v1 is a single task, so there is nothing to choose"):
        tasks_of(adapter_for(EnvParams(id="FrozenLake-v1")), "agent.curriculum")
