"""An environment without a goal: a sentence encoder is refused before collection, a chat model is told in the
prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from laurel.cli.app import main
from laurel.envs import adapter_for
from laurel.errors import AnnotationError
from laurel.feedback.annotator import Pair
from laurel.feedback.goals import UNKNOWN, embedding_goals
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.feedback.references import task_of
from laurel.params import EnvParams, Params
from laurel.params.judges import EmbeddingParams
from laurel.stages.preflight import check_fit
from tiny_project import UNTRACKED, Project

SENTENCE = r"annotate\.embedding\.goal: no useful goal is known for Pendulum-v1.* Set annotate\.embedding\.goal and"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project.create(tmp_path / "p", {**UNTRACKED, "env.id": "Pendulum-v1"})
    monkeypatch.chdir(made.path)
    return made


def params_of(project: Project, **changes: Any) -> Params:
    project.change({key.replace("__", "."): value for key, value in changes.items()})
    return project.params


def test_collect_refuses_a_sentence_encoder_without_a_goal(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect"]) == 2
    told = capsys.readouterr().err
    assert "laurel: annotate.embedding.goal: no useful goal is known for Pendulum-v1" in told
    assert not project.output("collect").exists()
    project.change({"annotate.embedding.goal": "Number 1 is very high."})
    assert main(["collect"]) == 0


def test_every_use_of_the_encoder_is_refused(project: Project) -> None:
    adapter = adapter_for(project.params.env)
    chat = {"model": "small", "base_url": "http://localhost:1/v1"}
    voters = {"members": [{"annotator": "openai", "openai": chat}, {"annotator": "embedding"}]}
    for params in (
        project.params,
        params_of(project, annotate__annotator="ensemble", annotate__ensemble=voters),
        params_of(
            project,
            annotate__annotator="openai",
            annotate__openai=chat,
            annotate__ensemble=None,
            arms=["extrinsic", "similarity"],
        ),
    ):
        with pytest.raises(AnnotationError, match=SENTENCE):
            check_fit(params, adapter)
    check_fit(params_of(project, arms=["extrinsic", "preference"]), adapter)  # a chat model alone
    with pytest.raises(AnnotationError, match=SENTENCE):
        embedding_goals(EmbeddingParams(anti_goal="Number 1 is low."), adapter)


def test_goals_of_the_params_go_before_those_of_the_adapter(project: Project) -> None:
    generic, lake = adapter_for(project.params.env), adapter_for(EnvParams(id="FrozenLake-v1"))
    assert lake.goal
    assert embedding_goals(EmbeddingParams(), lake) == (lake.goal, lake.anti_goal)
    assert embedding_goals(EmbeddingParams(goal="Fall.", anti_goal="Stay."), lake) == ("Fall.", "Stay.")
    car = adapter_for(EnvParams(id="MountainCar-v0"))
    assert car.encoder_goal not in (None, car.goal)
    assert embedding_goals(EmbeddingParams(), car) == (car.encoder_goal, car.anti_goal)
    assert embedding_goals(EmbeddingParams(goal="Fall."), car)[0] == "Fall."
    assert car.goal in PairQuestion(load_prompt("concise"), car).messages(Pair("a", "b"))[-1].content
    assert embedding_goals(EmbeddingParams(goal="Rise."), generic) == ("Rise.", generic.anti_goal)


def test_several_tasks_have_the_encoder_goals_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = ["MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-6x6-v0"]
    monkeypatch.setattr(type(adapter_for(EnvParams(id=tasks[0]))), "encoder_goal", "You reach the green square.")
    several = adapter_for(EnvParams(id="laurel/Tasks-v0", kwargs={"tasks": tasks}))
    assert several.encoder_goal == "You reach the green square." != several.goal


def test_a_chat_model_is_told_that_no_goal_is_known(project: Project) -> None:
    adapter = adapter_for(project.params.env)
    assert UNKNOWN in PairQuestion(load_prompt("motif"), adapter).messages(Pair("a", "b"))[-1].content
    assert task_of(project.params.annotate, adapter).goal == UNKNOWN
    assert "Number" not in UNKNOWN
    assert "high" not in UNKNOWN, "captions name levels, and would be judged by the word"


def test_the_message_says_that_the_adapter_has_no_goal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "laurel.envs"):  # processes that train and play turn it down
        adapter_for(EnvParams(id="Pendulum-v1"))
    assert "no goal is known" in caplog.text
