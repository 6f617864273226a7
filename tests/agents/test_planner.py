"""Planner, actor and reporter: subgoals are followed by a script, and captions tell the planner what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from laurel.agents.actor import View
from laurel.agents.actors import make_actor
from laurel.agents.actors.planner import Planner
from laurel.agents.subgoals import EXPLORE, Episode, Subgoal, Subgoals, subgoals_of
from laurel.envs import adapter_for
from laurel.envs import minigrid_codes as grid
from laurel.envs.base import Transitions
from laurel.envs.vector import make_vector
from laurel.errors import EnvError, ParamsError
from laurel.evaluation.rollout import roll_out
from laurel.feedback.annotators.huggingface import HuggingFaceKind
from laurel.llm.chat import ChatRequest, Identity, Reply
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams

DOORKEY = EnvParams(id="MiniGrid-DoorKey-5x5-v0")
KEY, DOOR, GOAL = (
    "You pick up the yellow key.",
    "You unlock the yellow door with the key.",
    "You reach the goal.",
)


def played(env_id: str, episodes: int = 8, annotate: AnnotateParams | None = None, **options: Any) -> tuple[float, Any]:
    """Return the share of episodes that are solved, and the actor."""
    env = EnvParams(id=env_id)
    adapter = adapter_for(env)
    actor = make_actor("planner", adapter, "arm", annotate=annotate, **options)
    rows = roll_out(env, adapter, actor, n_envs=4, episodes=episodes, seed=3, learned=None)
    return float(np.mean([row["success"] for row in rows])), actor


class Wise:
    """A simulated model: reads reports, and knows what comes next."""

    identity = Identity("simulated")

    def __init__(self) -> None:
        self.told: list[str] = []

    def ask(self, requests: Iterable[ChatRequest]) -> Iterator[tuple[int, Reply]]:
        for number, request in enumerate(requests):
            told = request.messages[-1].content.rpartition("What the agent reported")[2]
            self.told.append(told)
            wanted = DOOR if "carry the yellow key" in told else KEY
            if DOOR in told or "You go through" in told:
                wanted = GOAL
            chances = {choice: math.log(0.96 if choice == wanted else 0.01) for choice in request.choices}
            yield number, Reply("", chances)


def test_the_script_reaches_its_subgoal() -> None:
    assert played("MiniGrid-DoorKey-8x8-v0", plan="progress")[0] == 1.0
    assert played("MiniGrid-UnlockPickup-v0", 4, plan="progress")[0] == 1.0, "puts the key down for the box"


def test_random_subgoals_are_a_control() -> None:
    """With all subgoals known, luck takes longer."""
    env = EnvParams(id=DOORKEY.id, max_episode_steps=30)
    adapter = adapter_for(env)
    found = []
    for plan in ("progress", "random"):
        actor = make_actor("planner", adapter, "arm", plan=plan)
        rows = roll_out(env, adapter, actor, n_envs=8, episodes=16, seed=3, learned=None)
        found.append(np.mean([row["success"] for row in rows]))
    assert found[0] == 1.0
    assert found[1] < 0.5


def test_the_prompt_contains_the_results_of_earlier_subgoals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    model = Wise()
    monkeypatch.setattr(HuggingFaceKind, "model", lambda *_: model)
    monkeypatch.setattr(HuggingFaceKind, "check_here", lambda _: None)
    monkeypatch.setattr(HuggingFaceKind, "identity", lambda _: (model.identity, True))
    success, actor = played(DOORKEY.id, annotate=AnnotateParams(annotator="huggingface"), greedy=True, per_token=True)
    assert success == 1.0
    assert "Reports: Nothing happened yet. Now: You face" in model.told[0]
    assert any(f"Reports: {KEY} Now: " in told for told in model.told)
    assert any(DOOR in told for told in model.told)
    assert actor.account["states"] == len(set(model.told)) == actor.account["calls"]


class Undecided:
    """A chat model that finds the first subgoal a little better than the second; notes what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def probabilities(self, texts: list[str]) -> np.ndarray:
        self.told += texts
        return np.tile([0.6, 0.4], (len(texts), 1))


@pytest.mark.parametrize("greedy", [False, True])
def test_subgoals_are_drawn_by_their_probabilities_after_the_last_reports(greedy: bool) -> None:
    model, subgoals = Undecided(), (EXPLORE, Subgoal(KEY))
    planner = Subgoals(adapter_for(DOORKEY), subgoals, "model", model, 40, greedy=greedy)  # type: ignore[arg-type]
    asked, view = [Episode(reports=["one", "two", "three", "four"])] * 50, SimpleNamespace(text=["Here."] * 50)
    found = planner._chosen(asked, view, np.random.default_rng(0))  # type: ignore[arg-type]
    assert 0.4 < np.mean([subgoal is EXPLORE for subgoal in found]) < 0.8 or greedy
    assert set(found) == ({EXPLORE} if greedy else set(subgoals))
    assert set(model.told) == {"Reports: two three four Now: Here."}


def test_no_subgoal_is_asked_for_where_an_episode_has_ended() -> None:
    adapter, model = adapter_for(DOORKEY), Undecided()
    with closing(make_vector(DOORKEY, adapter, 3, 0)) as envs:
        planner = Planner(Subgoals(adapter, (EXPLORE, Subgoal(KEY)), "model", model, 40, greedy=True))  # type: ignore[arg-type]
        planner.begin(np.ones(3, dtype=np.bool_))
        planner.act(View(adapter, envs.reset(), np.array([True, False, True])), np.random.default_rng(0))
    assert len(model.told) == 2


def test_an_object_that_was_put_down_again_is_nothing_new() -> None:
    """Otherwise an agent would be paid for putting it down whenever it is to see something new."""
    adapter, rng = adapter_for(DOORKEY), np.random.default_rng(0)
    actor = make_actor("planner", adapter, "arm", plan="progress")
    assert isinstance(actor, Planner)
    with closing(make_vector(DOORKEY, adapter, 1, 0)) as envs:
        observation = envs.reset().copy()
        actor.begin(np.ones(1, dtype=np.bool_))
        (episode,) = actor.subgoals.episodes

        def step(action: np.ndarray) -> bool:
            nonlocal observation
            before, now = observation, envs.step(action)
            observation = now.observation.copy()
            steps = Transitions(before, action, now.reward, observation, now.terminated, now.truncated)
            return bool(actor.subgoals.record(np.array([0]), steps)[0])

        while episode.map.carried is None:
            view = View(adapter, observation)
            actor.subgoals.choose(view, rng)
            step(actor.pursue(view, rng).action)
        for action in (grid.DROP, grid.PICKUP, grid.DROP):
            episode.subgoal, episode.known = EXPLORE, len(episode.map.things)
            assert not step(np.array([action]))
        assert episode.reports[-3:] == ["You put down the yellow key.", KEY, "You put down the yellow key."]


def test_subgoals_are_captions_of_the_environment() -> None:
    subgoals = subgoals_of(adapter_for(DOORKEY))
    assert subgoals[0] is EXPLORE
    assert {KEY, DOOR, GOAL} <= {subgoal.text for subgoal in subgoals}
    assert len(subgoals) == 5


@pytest.mark.parametrize("env_id", ["MiniGrid-Fetch-5x5-N2-v0", "MiniGrid-DoorKey-6x6-v0"])
def test_subgoals_do_not_name_the_action_where_captions_do(env_id: str) -> None:
    plain, named = (adapter_for(EnvParams(id=env_id), with_action=which) for which in (False, True))
    assert len(subgoals_of(plain)) > 4
    assert subgoals_of(named) == subgoals_of(plain)


@pytest.mark.parametrize(
    ("env_id", "ends"),
    [
        ("MiniGrid-Fetch-5x5-N2-v0", {" and complete the mission.", " and fail."}),
        ("BabyAI-PutNextLocalS5N3-v0", {", as told.", "."}),
    ],
)
def test_a_subgoal_is_reached_also_where_the_caption_goes_on_about_the_mission(env_id: str, ends: set[str]) -> None:
    env = EnvParams(id=env_id)
    adapter = adapter_for(env)
    actor = make_actor("planner", adapter, "arm", plan="random")
    assert isinstance(actor, Planner)
    subgoals, rng, found = actor.subgoals.for_other_envs(), np.random.default_rng(0), set()
    with closing(make_vector(env, adapter, 16, 0)) as envs:
        observation = envs.reset().copy()
        for _ in range(200):
            step = envs.step(action := rng.integers(0, 4, 16))
            steps = Transitions(observation, action, step.reward, step.observation, step.terminated, step.truncated)
            for i, event in enumerate(adapter.encode(steps)):
                if (caption := adapter.describe(int(event))).startswith("You pick up") and step.valid[i]:
                    subgoals.begin(np.ones(1, dtype=np.bool_))
                    subgoal = next(known for known in subgoals.known if caption.startswith(known.text[:-1]))
                    subgoals.episodes[0].subgoal = subgoal
                    assert subgoals.record(np.array([0]), steps[i : i + 1]).all(), caption
                    found.add(caption.removeprefix(subgoal.text[:-1]))
            observation = step.observation.copy()
    assert ends <= found


@pytest.mark.parametrize(
    ("env_id", "options", "error", "sentence"),
    [
        ("FrozenLake-v1", {}, EnvError, "subgoals exist only in MiniGrid's tasks, and FrozenLake-v1 is not one"),
        (DOORKEY.id, {"plan": "best"}, ParamsError, "plan is 'best', but must be one of model, random, progress"),
        (DOORKEY.id, {"patience": 0}, ParamsError, "patience is 0"),
        (DOORKEY.id, {}, ParamsError, "can only be an arm's actor"),
    ],
)
def test_tasks_without_a_planner_are_refused(
    env_id: str, options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        make_actor("planner", adapter_for(EnvParams(id=env_id)), "arm", **options)
