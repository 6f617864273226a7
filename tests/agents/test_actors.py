"""Actors of other packages act wherever Laurel's do, and their errors are reported in one sentence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from installed import install
from laurel.agents.actor import Acted, Actor, Rule, View
from laurel.agents.actors import Checked, make_actor
from laurel.agents.behaviour import Behaviour
from laurel.cli.app import main
from laurel.data.trajectories import read_metadata, read_trajectories
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.vector import make_vector
from laurel.errors import ActorError, EnvError, ParamsError
from laurel.evaluation import play
from laurel.evaluation.rollout import roll_out
from laurel.params import EnvParams, Params, PolicyShare, parse_params
from laurel.params.arm_infos import arm_infos
from laurel.params.rewards import method_of
from laurel.rewards.method import RewardContext
from laurel.stages import collect
from minimal_params import MINIMAL

FAULTY = """
from laurel.agents.actor import Actor, Rule, actor_kind

class Told(Actor):
    role = "bound"
    def __init__(self, adapter): ...
    def act(self, view, rng): ...

@actor_kind("control")
def guessing(adapter):
    return Rule(lambda observation: 0)

@actor_kind("upper limit")
def misnamed(adapter):
    return guessing(adapter)

@actor_kind(lambda options: {"low": "control"}[options["level"]])
def levelled(adapter, *, level):
    return guessing(adapter)

@actor_kind(replays_agent=True)
def replayed(adapter, path):
    return Rule(lambda observation: int(path.name))

def wild(adapter):
    return Rule(lambda observation: 7)

def broken(adapter):
    return Rule(lambda observation: observation["no such key"])

class Silent(Actor):
    def act(self, view, rng):
        return None

def silent(adapter):
    return Silent()
"""
FAULTY_KINDS = ("Told", "guessing", "misnamed", "levelled", "replayed", "wild", "broken", "silent")
BLACKJACK = EnvParams(id="Blackjack-v1")


@pytest.fixture(autouse=True)
def _other_packages(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "faulty_actors", raising=False)
    (examples / "faulty_actors.py").write_text(FAULTY)
    install(examples, "faulty", {"laurel.actors": {name: f"faulty_actors:{name}" for name in FAULTY_KINDS}})


def test_an_actor_of_another_package_collects_plays_and_is_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a run in the repository has rewards of its own
    policies = [{"kind": "cautious", "options": {"stop": 12}}, {"kind": "random"}, {"kind": "reader"}]
    content = {
        "env": {"id": "Blackjack-v1"},
        "collect": {"steps": 600, "n_envs": 6, "policies": policies},
        "arms": "full",
        "agent": {"seeds": [0], "steps": 1},
    }
    params = parse_params(content, "params")
    collect.run(params.seed, params.env, params.collect, params.tracking, tmp_path / "trajectories")
    (transitions, _), *_ = read_trajectories(tmp_path / "trajectories")
    assert len(transitions) == 600
    assert [policy.get("options") for policy in read_metadata(tmp_path / "trajectories")["policies"]] == [
        {"stop": 12},
        None,
        None,
    ]

    adapter = adapter_for(BLACKJACK)
    always = make_actor("cautious", adapter, "actor", stop=22)
    rows = roll_out(BLACKJACK, adapter, always, n_envs=4, episodes=20, seed=0, learned=None)
    assert {row["return"] for row in rows} == {-1.0}, "who always hits goes bust"

    (tmp_path / "params.json").write_text(json.dumps(content))
    assert main(["play", "cautious", "--params", str(tmp_path / "params.json"), "--episodes", "3"]) == 0
    assert "cautious, Blackjack-v1" in capsys.readouterr().out


@pytest.mark.usefixtures("own_process")
def test_an_actor_of_another_package_is_an_arm_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {
        "env": {"id": "Blackjack-v1"},
        "collect": {"steps": 600},
        "arms": {"extrinsic": None, "rule": {"reward": None, "agent": "cautious"}},
        "agent": {"seeds": [0], "steps": 1},
    }
    params = parse_params(content, "params")
    info = arm_infos(params.arms, params.rewards, params.agent)[1]
    assert (info.trained, info.role, info.label) == (False, "baseline", "the actor cautious, never trained")
    bold = {"bold": {"reward": None, "agent": {"actor": "cautious", "options": {"stop": 20}}}}
    bolder = parse_params({**content, "arms": bold}, "params")
    told = arm_infos(bolder.arms, bolder.rewards, bolder.agent)[0].label
    assert told == "the actor cautious, never trained; agent.options.stop 20", "arms of one actor differ in its options"
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    run = play.Evaluation(0, RewardContext.of(params), params.evaluate, None, None)  # type: ignore[arg-type]
    play.play_agent(run, params.resolved_arms["rule"], 0, None, tmp_path / "rule.parquet", lambda _: None)
    assert pd.read_parquet(tmp_path / "rule.parquet")["arm"].unique().tolist() == ["rule"]
    content["arms"] = {"rule": {"reward": None, "agent": "cautios"}}
    with pytest.raises(ParamsError, match=r'agent is "cautios", but must be one of checkpoint, .*cautious'):
        parse_params(content, "params")


def _arm_params(arms: dict[str, Any]) -> Params:
    content = {"env": {"id": "Blackjack-v1"}, "collect": {"steps": 600}, "agent": {"seeds": [0], "steps": 1}}
    return parse_params({**content, "arms": arms}, "params")


def test_an_arm_has_the_role_that_its_actor_declares() -> None:
    roles = {
        "Told": "bound",
        "guessing": "control",
        "cautious": "baseline",
        "reader": "baseline",
        "random": "control",
        "optimal": "bound",
        "planner": "method",
        "llm_policy": "method",
        "language_model": "baseline",
        "writer": "baseline",
    }
    params = _arm_params({name: {"reward": None, "agent": name} for name in roles})
    assert {info.name: info.role for info in arm_infos(params.arms, params.rewards, params.agent)} == roles
    assert {name: arm.role for name, arm in params.resolved_arms.items()} == roles
    planned = {plan: {"agent": {"actor": "planner", "options": {"plan": plan}}} for plan in ("model", "random")}
    planned["progress"] = {"agent": {"actor": "planner", "options": {"plan": "progress"}}, "reward": None}
    found = _arm_params({name: {"reward": None, **arm} for name, arm in planned.items()}).resolved_arms
    assert [arm.role for arm in found.values()] == ["method", "control", "bound"]
    overridden = _arm_params({"told": {"reward": None, "agent": "Told", "role": "control"}})
    assert overridden.resolved_arms["told"].role == "control", "the arm goes before its actor"
    wrong = _arm_params({"wrong": {"reward": None, "agent": "misnamed"}})
    with pytest.raises(ParamsError, match=r'"misnamed" declares the role .upper limit., but it must be one of base'):
        arm_infos(wrong.arms, wrong.rewards, wrong.agent)
    levelled = _arm_params({"arm": {"reward": None, "agent": "levelled"}})
    with pytest.raises(ParamsError, match=r'The actor "levelled": its role for the options {} raised KeyError: .level'):
        arm_infos(levelled.arms, levelled.rewards, levelled.agent)


def test_an_option_of_the_wrong_type_has_a_role_until_the_planner_refuses_it() -> None:
    odd = {"actor": "planner", "options": {"plan": ["random"]}}
    assert _arm_params({"arm": {"reward": None, "agent": odd}}).resolved_arms["arm"].role == "method"
    with pytest.raises(ParamsError, match=r"plan is \['random'\], but must be one of model, random, progress"):
        make_actor("planner", adapter_for(EnvParams(id="MiniGrid-DoorKey-5x5-v0")), "key", **odd["options"])


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"reward": "preference"}, "reward"),
        ({"reward": None, "shaping": {"beta": 0.0}}, "shaping"),
        ({"reward": "oracle", "extrinsic": 0.0}, "reward and extrinsic"),
    ],
)
def test_an_actor_that_is_not_trained_has_no_reward(settings: dict[str, Any], named: str) -> None:
    """Else a rule written by hand would be compared, and shown, as what feedback achieved."""
    with pytest.raises(
        ParamsError,
        match=rf"arms\.x\.agent is the actor random, which is not trained, so {named} would have no effect\.",
    ):
        _arm_params({"x": {**settings, "agent": {"actor": "random"}}})


def test_an_actor_of_another_package_can_replay_an_agent() -> None:
    with pytest.raises(ParamsError, match=r"is replayed, which replays a trained agent: an arm without"):
        _arm_params({"again": {"reward": None, "agent": "replayed"}})
    with pytest.raises(ValidationError, match='of kind "replayed" and so needs `path`'):
        PolicyShare(kind="replayed")
    assert PolicyShare(kind="replayed", path=Path("1")).arguments == {"path": Path("1")}
    assert PolicyShare(kind="epsilon_random", path=Path("1")).arguments == {"path": Path("1"), "epsilon": 0.5}
    assert PolicyShare(kind="checkpoint", path=Path("1"), options={"greedy": True}).arguments == {
        "greedy": True,
        "path": Path("1"),
    }
    with pytest.raises(ParamsError, match='the actor "random" cannot be made with options'):
        Behaviour([PolicyShare(kind="random", options={"greedy": True})], adapter_for(BLACKJACK), 2, 0)
    assert PolicyShare(kind="cautious", path=Path("1"), options={"stop": 2}).arguments == {"stop": 2}


def test_reading_roles_imports_no_heavy_modules() -> None:
    code = (
        "import sys; from laurel.params.kinds import ACTORS, role_of_actor, replays_agent\n"
        "for kind in ACTORS.builtin(): role_of_actor(kind), replays_agent(kind)\n"
        "print([name for name in ('torch', 'transformers', 'pandas', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("wild", r'The actor "wild" returned actions of shape \(2,\) .* needs 2 integers from 0 to 1'),
        ("broken", r'The actor "broken": its act raised TypeError'),
        ("silent", r'The actor "silent": its act returned None, but an Acted is required\.'),
    ],
)
def test_errors_in_an_actor_are_reported(kind: str, sentence: str) -> None:
    adapter = adapter_for(BLACKJACK)
    view = View(adapter, np.array([[12, 3, 0], [20, 1, 1]], dtype=adapter.observation_dtype))
    with pytest.raises(ActorError, match=sentence):
        make_actor(kind, adapter, "actor").act(view, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"log_prob": np.zeros(2)}, r"a log_prob of shape \(2,\) and type float64, but 3 numbers are required"),
        ({"log_prob": "a"}, r"a log_prob of shape \(\) and type <U1, but 3 numbers"),
        ({"log_prob": np.array([np.nan, 0.0, 5.0])}, "the log-probability 5, which is above 0"),
        ({"value": np.zeros((3, 3))}, r"a value of shape \(3, 3\)"),
    ],
)
def test_log_probabilities_and_values_of_an_actor_are_checked(more: dict[str, Any], sentence: str) -> None:
    class Odd(Actor):
        def act(self, view: View, rng: np.random.Generator) -> Acted:
            return Acted(np.zeros(len(view), dtype=np.int64), **more)

    view = View(adapter_for(EnvParams(id="CartPole-v1")), np.zeros((3, 4), dtype=np.float32))
    actor = Checked(Odd(), "odd", gym.spaces.Discrete(2))
    with pytest.raises(ActorError, match=rf'The actor "odd" returned {sentence}'):
        actor.act(view, np.random.default_rng(0))


def test_a_reward_method_has_one_of_four_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    params = {**MINIMAL, "arms": {"outcome": {"reward": "outcome"}}}
    method = method_of(parse_params(params, "p").rewards["outcome"])
    monkeypatch.setattr(type(method), "role", "hero")
    with pytest.raises(
        ParamsError, match="The reward kind \"outcome\" declares the role 'hero', but it must be one of"
    ):
        _ = parse_params(params, "p").resolved_arms


def test_an_unknown_kind_or_option_is_refused() -> None:
    with pytest.raises(ParamsError, match=r'key: there is no actor "cautios".*Did you mean "cautious"'):
        make_actor("cautios", adapter_for(BLACKJACK), "key")
    with pytest.raises(ParamsError, match=r'key: the actor "cautious" cannot be made with options .*height'):
        make_actor("cautious", adapter_for(BLACKJACK), "key", height=3)


def test_options_of_a_language_model_are_those_of_its_section() -> None:
    said = r'the actor language_model: options\.modell is unknown\. Did you mean "model"\?'
    with pytest.raises(ParamsError, match=said):
        make_actor("language_model", adapter_for(BLACKJACK), "arms.a.agent", modell="tiny")


def test_equal_states_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapter_for(EnvParams(id="FrozenLake-v1"))
    packed, described = np.array([[6], [2], [6], [6], [2]]), []
    alone = [View(adapter, row[None]).text[0] for row in packed]
    describe = type(adapter).describe_observation

    def counted(self: Any, observation: Any) -> str:
        described.append(int(observation))
        return str(describe(self, observation))

    monkeypatch.setattr(type(adapter), "describe_observation", counted)
    assert list(View(adapter, packed).text) == alone
    assert described == [6, 2]


def test_an_environment_without_words_has_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    env = EnvParams(id="CartPole-v1")
    adapter = adapter_for(env)
    monkeypatch.setattr(type(adapter), "describe_observation", EnvAdapter.describe_observation)
    with pytest.raises(EnvError, match=r"CartPole-v1: an actor that reads text cannot act here.*describe_observation"):
        roll_out(env, adapter, make_actor("reader", adapter, ""), n_envs=1, episodes=1, seed=0, learned=None)


@pytest.mark.parametrize(
    ("env_id", "row", "text"),
    [
        (
            "FrozenLake-v1",
            [6],
            "You are at row 2, column 3, 3 squares from the goal. Around you: left a hole, down ice, right a hole, up "
            "ice.",
        ),
        (
            "laurel/GridWorld-v0",
            [6],
            "You are at row 2, column 3, 2 squares from the goal. Around you: left a wall, down a free square, right "
            "the trap, up a free square.",
        ),
        ("Blackjack-v1", [15, 1, 1], "You have 15 with a usable ace against the dealer's ace."),
        (
            "Taxi-v3",
            [(2 * 5 + 1) * 20 + 4 * 4 + 1],
            "You are at row 3, column 2 and can drive south or north or east or west. The passenger is in the taxi and "
            "wants to go to row 1, column 5.",
        ),
        ("CliffWalking-v1", [36], "You are in column 1, at the start; the goal lies to the right, 13 steps away."),
        ("CartPole-v1", [0.9, 0.0, 0.05, 0.5],
         "The pole leans slightly to the right and is falling; the cart is right of the middle."),
        ("MountainCar-v0", [-0.3, 0.02], "The car climbs the right slope at a medium speed, low down."),
        ("Acrobot-v1", [1.0, 0.0, 1.0, 0.0, 0.0, 2.0],
         "The tip hangs at the bottom and hardly moves; the second bar turns with a positive speed."),
        (
            "LunarLander-v3",
            [0.5, 1.0, 0.3, -0.3, 0.2, -0.3, 0, 0],
            "The lander descends fast, high up, tilted to the left, to the right of the landing pad. It drifts to the "
            "right. It turns to the right.",
        ),
        ("laurel/Ultimatum-v0", [1, 3], None),
        ("laurel/Catch-v0", None, None),
        ("laurel/PositionOnlyCartPole-v0", None, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("with_action", [False, True])
def test_observations_in_words(env_id: str, row: list[float] | None, text: str | None, with_action: bool) -> None:
    adapter = adapter_for(EnvParams(id=env_id), with_action=with_action)
    given = np.zeros(adapter.observation_size) if row is None else np.array(row)
    (said,) = View(adapter, given[None].astype(adapter.observation_dtype)).text
    assert said if text is None else said == text, "whether captions name the action makes no difference"


@pytest.mark.parametrize("env_id", ["BabyAI-GoToObj-v0", "MiniGrid-MultiRoom-N2-S4-v0", "MiniGrid-LavaGapS5-v0"])
def test_every_grid_has_words_and_named_actions(env_id: str) -> None:
    adapter, mission = adapter_for(EnvParams(id=env_id)), env_id.startswith("BabyAI")
    envs = make_vector(EnvParams(id=env_id), adapter, 2, 0)
    observation = envs.reset()
    for action in range(7):
        assert all(
            re.match(r"(Your mission: go to the \w+ \w+\. )?You face ", text) and ("mission" in text) == mission
            for text in View(adapter, observation).text
        )
        observation = envs.step(np.full(2, action)).observation
    assert [adapter.action_name(action) for action in (0, 6)] == ["turn left", "finish"]
    envs.close()


def test_a_grid_in_words() -> None:
    env = EnvParams(id="MiniGrid-DoorKey-5x5-v0")
    adapter = adapter_for(env)
    from laurel.envs import make_reference

    reference = make_reference(env)
    observation, _ = reference.reset(seed=0)
    (text,) = View(adapter, adapter.pack_one(observation)[None]).text
    assert text.startswith("You face ")
    assert "You carry nothing. Right ahead of you is " in text
    assert "the yellow key" in text
    # facing a wall: nothing is free ahead; the corner's two walls are named
    view = np.zeros((7, 7, 3), dtype=np.uint8)
    view[..., 0] = 1
    view[2, :, 0], view[3, 2, 0] = 2, 2
    assert adapter.describe_observation({"image": view, "direction": 1}) == (
        "You face south. You carry nothing. Right ahead of you is nothing. The way ahead is free for 3 squares. A wall "
        "is to your left."
    )
    reference.close()


def test_a_rule_reads_the_observation_or_the_text() -> None:
    with pytest.raises(ActorError, match='of is \'texts\', but must be "observation" or "text"'):
        Rule(lambda text: int("You have 1" in text), of="texts")
