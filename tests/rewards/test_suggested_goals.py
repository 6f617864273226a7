"""Goals are suggested, compared with captions, and paid once in an episode, only after they were suggested."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from chat_server import chat_server, completion, top_logprobs
from sayings import rollout_of

from laurel.errors import AnnotationError, DataError
from laurel.feedback.questions.goals import GoalsQuestion
from laurel.params import parse_params
from laurel.rewards.base import UNPAID, Steps
from laurel.rewards.method import RewardContext
from laurel.rewards.methods.goals import GoalReward, GoalsParams, GoalTable, cosines, suggested
from minimal_params import MINIMAL
from tiny_project import UNTRACKED, Project, read_json

KEY, DOOR = "You pick up the key.", "You open the door."
SIMILAR = np.float32([[1.0, 0.1], [0.2, 0.95], [0.5, 0.5]])


def steps(ids: Any, **ends: Any) -> Steps:
    rollout = rollout_of(ids, **ends)
    texts = [KEY, DOOR, "You turn."]
    return Steps(rollout.transitions, np.array(ids), texts, rollout.valid, rollout.terminated, rollout.truncated)


def table(**contexts: list[int]) -> GoalTable:
    return GoalTable([KEY, DOOR], {"": [], **contexts}, [KEY, DOOR, "You turn."], SIMILAR, "encoder")


def test_a_goal_is_rewarded_once_per_episode() -> None:
    reward = GoalReward(table(**{"": [0, 1]}), 0.9)
    reward.begin(2)
    ends = {"terminated": [[0, 0], [0, 0], [1, 0], [0, 0]], "valid": [[1, 1], [1, 1], [1, 1], [0, 1]]}
    paid = reward.pay(steps([[0, 2], [0, 1], [1, -1], [0, 1]], **ends))
    expected = np.full((4, 2), UNPAID)
    expected[0, 0], expected[2, 0], expected[1, 1] = 1.0, 0.95, 0.95
    np.testing.assert_array_equal(paid, expected)
    np.testing.assert_array_equal(reward.pay(steps([[0, 1]])), np.float32([[1.0, UNPAID]]))
    assert reward.unseen == 0


def test_a_goal_counts_from_the_step_after_it_was_suggested() -> None:
    reward = GoalReward(table(**{KEY: [1], DOOR: [0, 1]}), 0.9)
    reward.begin(1)
    paid = reward.pay(steps([[1], [1], [0], [0]]))
    np.testing.assert_array_equal(paid[:, 0], np.float32([UNPAID, 0.95, 1.0, UNPAID]))


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_a_goal_that_was_suggested_in_an_episode_does_not_count_in_the_next(end: str) -> None:
    reward = GoalReward(table(**{KEY: [0]}), 0.9)
    reward.begin(1)
    paid = reward.pay(steps([[0], [2], [0], [0]], **{end: [[0], [1], [0], [0]]}))
    np.testing.assert_array_equal(paid[:, 0], np.float32([UNPAID, UNPAID, UNPAID, 1.0]))


def test_a_caption_is_paid_for_the_nearest_goal_and_reaches_all_that_are_near_enough() -> None:
    near = np.float32([[0.75, 0.95], [0.75, 0.0], [0.0, 0.0]])
    found = GoalTable([KEY, DOOR], {"": [0, 1]}, [KEY, DOOR, "You turn."], near, "encoder")
    reward = GoalReward(found, 0.75)
    reward.begin(2)
    expected = np.float32([[0.95, 0.75], [UNPAID, 0.95]])
    np.testing.assert_array_equal(reward.pay(steps([[0, 1], [1, 0]])), expected)
    unknown: Any = SimpleNamespace(oracle=lambda _: None)
    assert found.quality(0.75, unknown) == {"goals": 2, "reachable": 1.0, "sensible": None}
    assert found.quality(0.8, unknown)["reachable"] == 0.5


def test_similarities_do_not_depend_on_the_length_of_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = {"far": [30.0, 0.0], "near": [0.0, 0.1], "goal": [0.0, 5.0]}
    encoder = SimpleNamespace(encode=lambda texts: np.float32([vectors[text] for text in texts]))
    monkeypatch.setattr("laurel.rewards.methods.goals.load_encoder", lambda _: encoder)
    np.testing.assert_allclose(cosines(["far", "near"], ["goal"], "any"), [[0.0], [1.0]])


def test_captions_without_a_utility_above_0_are_no_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = SimpleNamespace(name="judge", utility=lambda _: np.array([1.0, 0.0, -1.0]))
    monkeypatch.setattr("laurel.rewards.methods.goals.goals_judge", lambda *_: judge)
    context = RewardContext.of(parse_params({**MINIMAL, "annotate": {"annotator": "scripted"}}, "params.yaml"))
    _, simulated, found = suggested([KEY, DOOR, "You turn."], GoalsParams(kind="goals"), context, context.adapter)
    assert (simulated, found) == (True, {"": [KEY]})


@pytest.mark.parametrize(
    ("answer", "goals"),
    [
        ('{"goals": ["Get the key.", "Open it.", "Get the key."]}', ("Get the key.", "Open it.")),
        ('Sure! {"goals": [" Get the key. ", ""]} Good luck.', ("Get the key.",)),
        ('{"goals": []}', ()),
        ('{"goals": "Get the key."}', None),
        ('{"goals": [1]}', None),
        (r'{"goals": ["Get \ud83d"]}', None),
        ("Get the key.", None),
        ('{"goals": ["Get', None),
    ],
)
def test_answers_as_models_give_them(answer: str, goals: tuple[str, ...] | None) -> None:
    reading = GoalsQuestion.parse(answer)
    assert (reading and reading.value) == goals
    assert GoalsQuestion.parse(answer, cut=True) is None


def test_a_table_is_stored_and_a_damaged_one_is_reported(tmp_path: Path) -> None:
    table(**{"": [0]}).save(tmp_path)
    found = GoalTable.load(tmp_path)
    assert (found.goals, found.contexts) == ([KEY, DOOR], {"": [0]})
    np.testing.assert_array_equal(found.similarity, SIMILAR)
    (tmp_path / "goals.json").write_text('{"goals": []}')
    with pytest.raises(DataError, match=r"goals\.json: is damaged"):
        GoalTable.load(tmp_path)


def test_a_chat_model_suggests_goals_after_each_caption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(body: dict[str, Any]) -> tuple[str, list[str], str]:
        question = body["messages"][-1]["content"]
        begins = '"Nothing yet' in question
        return question, [], '{"goals": ["You reach the goal."]}' if begins else '{"goals": ["Fly to the moon."]}'

    project = Project.create(tmp_path / "p", {**UNTRACKED, "arms": {"goals": {"reward": "goals"}}})
    monkeypatch.chdir(project.path)
    with chat_server() as server:
        server.plan = answer
        asking = {"annotate.annotator": "openai", "annotate.openai": {"model": "tiny", "base_url": server.url}}
        project.change({**asking, "rewards": {"goals": {"context": "caption", "threshold": 0.8}}})
        project.run("collect", "caption", "annotate", "train-reward")
        found = GoalTable.load(project.output("train-reward") / "goals")
        assert len(server.bodies) == len(found.captions) + 1
    assert found.goals == ["You reach the goal.", "Fly to the moon."]
    quality = read_json(project.output("train-reward") / "goals" / "quality.json")
    assert quality == {"judge": "tiny", "simulated": False, "goals": 2, "reachable": 0.5, "sensible": 0.5}


def test_an_annotator_of_pairs_alone_is_refused(tmp_path: Path) -> None:
    members = [{"annotator": "scripted"}, {"annotator": "embedding"}]
    changes = {"annotate.annotator": "ensemble", "annotate.ensemble": {"members": members}}
    project = Project.create(tmp_path / "p", {**UNTRACKED, **changes, "arms": {"goals": {"reward": "goals"}}})
    project.run("collect", "caption", "annotate")
    with pytest.raises(AnnotationError, match=r"the annotator ensemble judges pairs, and suggests no goals"):
        project.run("train-reward")


def test_a_chat_model_says_which_captions_are_goals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(body: dict[str, Any]) -> tuple[str, list[str], str]:
        question = body["messages"][-1]["content"]
        return question, [], "Yes." if '"You reach the goal."' in question else "No."

    project = Project.create(tmp_path / "p", {**UNTRACKED, "arms": {"goals": {"reward": "goals"}}})
    monkeypatch.chdir(project.path)
    with chat_server() as server:
        server.plan = answer
        openai = {"model": "tiny", "base_url": server.url}
        project.change({"annotate.annotator": "openai", "annotate.openai": openai})
        project.change({"rewards": {"goals": {"form": "closed"}}})
        project.run("collect", "caption", "annotate", "train-reward")
        found = GoalTable.load(project.output("train-reward") / "goals")
        assert len(server.bodies) == len(found.captions), "each is asked about once"
    assert found.goals == ["You reach the goal."]
    assert found.contexts == {"": [0]}
    quality = read_json(project.output("train-reward") / "goals" / "quality.json")
    assert (quality["reachable"], quality["sensible"]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("no", "says"),
    [(-0.1, r"is 0\.095: set rewards\.goals\.least lower \(0\.5 now\), or use another"), (0.0, "is 0: use another")],
)
def test_the_highest_probability_is_told_where_no_caption_is_a_goal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no: float, says: str
) -> None:
    project = Project.create(tmp_path / "p", {**UNTRACKED, "arms": {"goals": {"reward": "goals"}}})
    monkeypatch.chdir(project.path)
    tokens = top_logprobs(no=no, yes=math.log(1 - math.exp(no))) if no else None
    with chat_server() as server:
        server.behave = lambda request, body: web.json_response(completion("no", tokens))
        openai = {"model": "tiny", "base_url": server.url}
        project.change({"annotate.annotator": "openai", "annotate.openai": openai})
        project.change({"rewards": {"goals": {"form": "closed"}}})
        project.run("collect", "caption", "annotate")
        with pytest.raises(AnnotationError, match=rf"^rewards\.goals: no caption is a goal.* tiny gives {says}"):
            project.run("train-reward")
