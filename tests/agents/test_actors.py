"""Actors of another package act wherever ours do, and what is wrong with one is said in a sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from laurel.agents.actor import View
from laurel.agents.actors import make_actor
from laurel.cli.app import main
from laurel.data.trajectories import read_metadata, read_trajectories
from laurel.envs import adapter_for
from laurel.errors import ActorError, EnvError, ParamsError
from laurel.evaluation import play
from laurel.evaluation.rollout import roll_out
from laurel.params import EnvParams, parse_params
from laurel.params.arms import arm_infos
from laurel.stages import collect

THEIRS = """
import numpy as np
from laurel.agents.actor import Acted, Actor, Rule

class Standing(Actor):
    def __init__(self, adapter, stop=17):
        self.stop, self.begun = stop, 0
    def begin(self, which):
        self.begun += which.sum()
    def act(self, view, rng):
        assert self.begun > 0
        return Acted((view.packed[:, 0] < self.stop).astype(int))

def reader(adapter):
    return Rule(lambda text: int("You have 1" in text), of="text")

def wild(adapter):
    return Rule(lambda observation: 7)

def broken(adapter):
    return Rule(lambda observation: observation["no such key"])
"""
BLACKJACK = EnvParams(id="Blackjack-v1")


@pytest.fixture(autouse=True)
def _another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_actors", raising=False)
    (tmp_path / "their_actors.py").write_text(THEIRS)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    entries = {"standing": "Standing", "reader": "reader", "wild": "wild", "broken": "broken"}
    lines = [f"{name} = their_actors:{thing}" for name, thing in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[laurel.actors]", *lines, ""]))


def test_an_actor_of_another_package_collects_plays_and_is_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = [{"kind": "standing", "options": {"stop": 12}}, {"kind": "random"}, {"kind": "reader"}]
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
    always = make_actor("standing", adapter, "actor", stop=22)
    rows = roll_out(BLACKJACK, adapter, always, n_envs=4, episodes=20, seed=0, learned=None)
    assert {row["return"] for row in rows} == {-1.0}, "who always hits goes bust"

    (tmp_path / "params.json").write_text(json.dumps(content))
    assert main(["play", "standing", "--params", str(tmp_path / "params.json"), "--episodes", "3"]) == 0
    assert "standing, Blackjack-v1" in capsys.readouterr().out


@pytest.mark.usefixtures("own_process")
def test_an_actor_of_another_package_is_an_arm_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {
        "env": {"id": "Blackjack-v1"},
        "collect": {"steps": 600},
        "arms": {"extrinsic": None, "rule": {"reward": None, "agent": "standing"}},
        "agent": {"seeds": [0], "steps": 1},
    }
    params = parse_params(content, "params")
    info = arm_infos(params)[1]
    assert (info.trained, info.role, info.label) == (False, "bound", "the actor standing, never trained")
    monkeypatch.setattr(play, "watching", lambda *_: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    play.play_agent(params, "rule", 0, None, None, tmp_path / "rule.parquet", lambda _: None)  # type: ignore[arg-type]
    assert pd.read_parquet(tmp_path / "rule.parquet")["arm"].unique().tolist() == ["rule"]
    content["arms"] = {"rule": {"reward": None, "agent": "standin"}}
    with pytest.raises(ParamsError, match=r'agent is "standin", but must be one of checkpoint, .*standing'):
        parse_params(content, "params")


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("wild", r'The actor "wild" returned actions of shape \(2,\) .* needs 2 integers from 0 to 1'),
        ("broken", r'The actor "broken": its act raised TypeError'),
    ],
)
def test_what_is_wrong_with_an_actor_is_said(kind: str, sentence: str) -> None:
    adapter = adapter_for(BLACKJACK)
    view = View(adapter, np.array([[12, 3, 0], [20, 1, 1]], dtype=adapter.observation_dtype))
    with pytest.raises(ActorError, match=sentence):
        make_actor(kind, adapter, "actor").act(view, np.random.default_rng(0))


def test_an_unknown_kind_or_option_is_refused() -> None:
    with pytest.raises(ParamsError, match=r'key: there is no actor "standin".*Did you mean "standing"'):
        make_actor("standin", adapter_for(BLACKJACK), "key")
    with pytest.raises(ParamsError, match=r'key: the actor "standing" cannot be made with options .*height'):
        make_actor("standing", adapter_for(BLACKJACK), "key", height=3)


def test_an_environment_without_words_has_no_text() -> None:
    env = EnvParams(id="CartPole-v1")
    with pytest.raises(EnvError, match=r"CartPole-v1: an actor that reads text cannot act here.*describe_observation"):
        roll_out(env, adapter := adapter_for(env), make_actor("reader", adapter, ""), n_envs=1, episodes=1, seed=0,
                 learned=None)  # fmt: skip


@pytest.mark.parametrize(
    ("env_id", "row", "text"),
    [
        ("FrozenLake-v1", [6], "You are at row 2, column 3, 3 squares from the goal."),
        ("Blackjack-v1", [15, 1, 1], "You have 15 with a usable ace against the dealer's ace."),
        (
            "Taxi-v3",
            [(2 * 5 + 1) * 20 + 4 * 4 + 1],
            "You are at row 3, column 2. The passenger is in the taxi and wants to go to row 1, column 5.",
        ),
        ("CliffWalking-v1", [36], "You are in column 1, at the start; the goal is 13 steps away."),
    ],
)
def test_observations_in_words(env_id: str, row: list[int], text: str) -> None:
    adapter = adapter_for(EnvParams(id=env_id))
    assert View(adapter, np.array([row], dtype=adapter.observation_dtype)).text == (text,)


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
    reference.close()
