"""Missions of BabyAI in observations and captions, against the environments' own instructions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401 - registers its environments
import numpy as np
import pytest
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Ball, Box, Door, Key
from minigrid.envs.babyai.core.verifier import GoToInstr, ObjDesc, OpenInstr, PickupInstr, PutNextInstr
from minigrid.minigrid_env import MiniGridEnv

from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.minigrid_codes import COLORS, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE
from laurel.envs.minigrid_missions import SIZE, MissionAdapter, numbers_of, words_of
from laurel.envs.vector import make_vector
from laurel.errors import EnvError
from laurel.params import EnvParams

IDS = sorted(
    {
        spec.entry_point: env_id
        for env_id, spec in gym.registry.items()
        if env_id.startswith(("BabyAI-", "MiniGrid-Fetch", "MiniGrid-GoTo", "MiniGrid-PutNear"))
    }.values()
)
"""One of each class."""
DROP = 4
_PLAY = [0.14, 0.14, 0.36, 0.14, 0.06, 0.15, 0.01]


@pytest.mark.parametrize("env_id", IDS)
def test_a_mission_is_the_same_in_numbers_and_back(env_id: str) -> None:
    env, adapter = gym.make(env_id), adapter_for(EnvParams(id=env_id))
    assert isinstance(adapter, MissionAdapter)
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        row = adapter.pack_one(observation)
        assert row.shape == (adapter.observation_size,)
        assert adapter.unpack(row)["mission"] == observation["mission"]


@pytest.mark.parametrize(
    "mission",
    [
        "open the door on your left",
        "you must fetch a grey key",
        "put the red ball near the blue box",
        "go to an object",
        "go to a red object behind you and open a door, then put the blue key next to a door and pick up the ball",
        "pick up the box in front of you after you go to the red door and open a green door on your right",
    ],
)
def test_all_forms_of_a_mission(mission: str) -> None:
    if " an " in mission:
        with pytest.raises(ValueError, match=mission):
            numbers_of(mission)
    else:
        assert numbers_of(mission).shape == (SIZE,)
        assert words_of(numbers_of(mission)) == mission


@pytest.mark.parametrize("env_id", ["BabyAI-PickupLoc-v0", "BabyAI-SynthSeq-v0", "MiniGrid-Fetch-5x5-N2-v0"])
def test_envpool_and_gymnasium_give_the_same_missions(env_id: str) -> None:
    params = EnvParams(id=env_id)
    adapter = adapter_for(params)
    for reference in (False, True):
        envs = make_vector(params, adapter, 8, 0, reference=reference)
        rows = envs.reset()
        envs.close()
        assert envs.backend == ("gymnasium" if reference else "envpool")
        assert rows.shape == (8, adapter.observation_size)
        missions = {adapter.unpack(row)["mission"] for row in rows}
        assert len(missions) > 3
        assert all((numbers_of(mission) > 0).any() for mission in missions)


def test_a_mission_that_cannot_be_read_is_refused() -> None:
    adapter = adapter_for(EnvParams(id="BabyAI-GoToLocal-v0"))
    observation, _ = gym.make("BabyAI-GoToLocal-v0").reset(seed=0)
    with pytest.raises(EnvError, match=r'BabyAI-GoToLocal-v0: its mission "win" is not of BabyAI\'s grammar'):
        adapter.pack_one({**observation, "mission": "win"})


def test_agents_see_the_mission_and_language_models_read_it() -> None:
    adapter = adapter_for(EnvParams(id="BabyAI-GoToLocal-v0"))
    observation, _ = gym.make("BabyAI-GoToLocal-v0").reset(seed=0)
    missions = ["go to the red ball", "go to the red box", "go to the blue ball", "pick up the red ball"]
    missions += ["go to the red ball on your left", "pick up the key, then go to the red ball"]
    rows = np.stack([adapter.pack_one({**observation, "mission": mission}) for mission in missions])
    features = adapter.features(rows)
    assert features.dtype == np.float32
    assert (features[:, :147] == features[0, :147]).all()
    assert len(np.unique(features[:, 147:], axis=0)) == len(missions)
    values = dict(
        zip([feature.name for feature in adapter.observation_features], adapter.feature_values(rows).T, strict=True)
    )
    assert values["mission"].tolist() == [2, 2, 2, 3, 2, 3]
    assert values["mission_thing_kind"].tolist() == [6, 7, 6, 6, 6, 5]
    assert values["mission_thing_color"].tolist() == [1, 1, 3, 1, 1, 0]
    text = adapter.describe_observation(adapter.unpack(rows[4]))
    assert text is not None
    assert text.startswith("Your mission: go to the red ball on your left. You face ")


class Stage(MiniGridEnv):
    """A walled field, the agent at (1, 1) looking right, and things where the test puts them."""

    def __init__(self, mission: str, things: dict[tuple[int, int], Any]) -> None:
        self.told, self.things = mission, things
        super().__init__(mission_space=MissionSpace(mission_func=lambda: mission), width=9, height=5, max_steps=100)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        for (x, y), thing in self.things.items():
            self.put_obj(thing, x, y)
        self.agent_pos, self.agent_dir = (1, 1), 0
        self.mission = self.told


def play(mission: str, things: dict[tuple[int, int], Any], actions: list[int]) -> list[str]:
    """Return the captions of a sequence of actions."""
    adapter = adapter_for(EnvParams(id="BabyAI-BossLevel-v0"))
    env, listed = Stage(mission, things), set(adapter.events())
    before, captions = adapter.pack_one(env.reset(seed=0)[0]), []
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        after = adapter.pack_one(observation)
        ends = np.array([terminated]), np.array([truncated])
        event = adapter.encode(
            Transitions(before[None], np.array([action]), np.float32([reward]), after[None], *ends)
        ).item()
        assert event in listed
        captions.append(adapter.describe(event))
        before = after
    return captions


def test_captions_refer_to_the_mission() -> None:
    things = {(5, 1): Key("red"), (7, 1): Door("red", is_locked=True), (1, 2): Ball("grey")}
    mission = "open the red door after you pick up the red key"
    actions = [LEFT, RIGHT, *[FORWARD] * 3, PICKUP, FORWARD, FORWARD, TOGGLE, TOGGLE]
    assert play(mission, things, actions) == [
        "You turn.",
        "You see the red key you were told of.",
        "You come closer to the red key you were told of.",
        "You come closer to the red key you were told of.",
        "You go to the red key you were told of.",
        "You pick up the red key, as told first.",
        "You come closer to the red door you were told of.",
        "You go to the red door you were told of.",
        "You unlock the red door with the key, as told last.",
        "You close the red door you were told of.",
    ]


def test_initial_positions_are_not_known_later() -> None:
    things = {(3, 1): Ball("red"), (3, 3): Ball("blue")}
    assert play("pick up the ball on your right and open a door", things, [FORWARD, PICKUP, DROP]) == [
        "You go to the red ball you may have been told of.",
        "You pick up the red ball you may have been told of.",
        "You put down the red ball you may have been told of.",
    ]


def test_objects_outside_the_mission_are_captioned_as_elsewhere() -> None:
    things = {(4, 1): Box("green")}
    assert play("go to the red box", things, [FORWARD] * 3) == [
        "You move forward.",
        "You move forward.",
        "You bump into the green box.",
    ]


def test_to_put_something_somewhere_asks_to_pick_it_up() -> None:
    things = {(2, 1): Key("blue"), (7, 3): Ball("grey")}
    assert play("put the blue key next to the grey ball", things, [PICKUP, FORWARD, DROP])[:2] == [
        "You pick up the blue key, as told.",
        "You come closer to the grey ball you were told of.",
    ]


def instructions(instruction: Any) -> Iterator[Any]:
    """Yield the clauses of BabyAI's own tree of instructions."""
    for part in ("instr_a", "instr_b"):
        if hasattr(instruction, part):
            yield from instructions(getattr(instruction, part))
    if not hasattr(instruction, "instr_a"):
        yield instruction


def related(env: Any, verb: str, color: str, kind: str) -> str:
    """Say what the mission has to do with an event, from the environment's instructions: the slow, obvious way."""
    found, fits = "", lambda thing: thing.type in (None, kind) and thing.color in (None, color)
    asked = {"pick": (PickupInstr, PutNextInstr), "open": (OpenInstr,), "unlock": (OpenInstr,), "go": (GoToInstr,)}
    for clause in instructions(env.instrs):
        parts = [value for value in vars(clause).values() if isinstance(value, ObjDesc)]
        for part in filter(fits, parts):
            found = "were told of" if not part.loc else found or "may have been told of"
        first = getattr(clause, "desc", None) or getattr(clause, "desc_move", None)
        if first is not None and fits(first) and not first.loc and isinstance(clause, asked.get(verb, ())):
            return "as told"
    return found


@pytest.mark.parametrize("level", ["GoToLocal", "PickupLoc", "Open", "PutNextLocal", "SynthSeq", "BossLevelNoUnlock"])
def test_captions_agree_with_the_levels_own_instructions(say: Callable[..., str], level: str) -> None:
    env_id = f"BabyAI-{level}-v0"
    adapter, env, rng = adapter_for(EnvParams(id=env_id)), gym.make(env_id).unwrapped, np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    met = set()
    for step in range(2500):
        action = int(rng.choice(7, p=_PLAY))
        after, reward, terminated, truncated, _ = env.step(action)
        rows = adapter.pack_one(observation), action, adapter.pack_one(after)
        said = say(adapter, *rows, reward=reward, end=terminated)
        words = said.rstrip(".").replace(",", "").split()
        about = [place for place, word in enumerate(words) if word in ("door", "key", "ball", "box")]
        if not terminated and about:
            color, kind = words[about[0] - 1], words[about[0]]
            relation = related(env, words[1], color, kind)
            assert relation in said, said
            assert relation or "told" not in said, said
            front = env.grid.get(*env.front_pos)
            if words[1] == "go" and "through" not in words:
                assert (front.color, front.type) == (color, kind)
            met.add((words[1], relation))
        observation = after
        if terminated or truncated or step % 100 == 99:
            observation, _ = env.reset()
    assert len(met) >= 6
    assert {"were told of", ""} <= {relation for _, relation in met}


@pytest.mark.parametrize("task", ["GoToDoor-8x8", "GoToObject-8x8-N2", "Fetch-8x8-N3", "PutNear-8x8-N3"])
def test_the_list_has_exactly_the_captions_that_can_occur(task: str) -> None:
    """Up to colours: where opening, picking up or putting down ends an episode, no caption says that it went on."""
    env_id = f"MiniGrid-{task}-v0"
    adapter, env, rng = adapter_for(EnvParams(id=env_id)), gym.make(env_id), np.random.default_rng(0)
    said, (observation, _) = set(), env.reset(seed=0)
    for _ in range(9000):
        action = int(rng.choice(7, p=[0.15, 0.15, 0.44, 0.12, 0.08, 0.05, 0.01]))
        after, reward, terminated, truncated, _ = env.step(action)
        before, then = (adapter.pack_one(seen)[None] for seen in (observation, after))
        ends = np.array([terminated]), np.array([truncated])
        steps = Transitions(before, np.array([action]), np.float32([reward]), then, *ends)
        said.add(adapter.describe(adapter.encode(steps).item()))
        observation = env.reset()[0] if terminated or truncated else after
    listed = {adapter.describe(event) for event in adapter.events()}
    assert said <= listed
    colour = "|".join(COLORS)
    kinds, seen = ({re.sub(rf"\b({colour})\b", "*", text) for text in texts} for texts in (listed, said))
    assert all(" box" in text or text.endswith((" mission.", " fail.")) for text in kinds - seen), "the rare ones"


def test_other_minigrid_tasks_are_unchanged() -> None:
    adapter = adapter_for(EnvParams(id="MiniGrid-UnlockPickup-v0"))
    assert adapter.observation_size == 148
    captions = {adapter.describe(event) for event in adapter.events()}
    assert not any("told" in caption or "come closer" in caption for caption in captions)
