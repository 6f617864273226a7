"""Rounds of a language model whose proposals are sampled in shards: in one process, or each apart from the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from move_lists import GRID, SMALL, begun

from laurel.agents.checkpoint import MODEL
from laurel.agents.language_model.shards import ARRAYS, SampledShard
from laurel.envs import adapter_for
from laurel.errors import DataError, ParamsError
from laurel.params import EnvParams, parse_params
from laurel.params.language_actor import LanguageActorParams
from laurel.params.training import ShapingParams
from laurel.training.curve import read_curve
from laurel.training.lockstep import make_envs
from laurel.training.loop import sample_shard, train, train_together
from laurel.training.task import Assignment, Task

SLIPPERY = EnvParams(
    id="laurel/GridWorld-v0",
    kwargs={"size": 2, "goal": [1, 1], "actions": "sequence", "max_moves": 2, "slip": 0.2, "max_episode_steps": 2},
)
"""Episodes of one step or two, drawn by the environments' own streams."""
ROUNDS = 4


def task(steps: int = 4 * 3 * 32, **settings: Any) -> Task:
    params = LanguageActorParams.model_validate({**SMALL, "n_envs": 32, "n_steps": 3, "shards": 2, **settings})
    return Task("lm", 0, 0, SLIPPERY, params, ShapingParams(), steps, checkpoint_steps=3 * 32)


@pytest.mark.parametrize("settings", [{}, {"strategy": "free", "max_tokens": 6, "constrained": False}])
def test_shards_sampled_apart_give_the_same_agent(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Each round goes on from the files of the last one: the checkpoint, and a file for each shard."""
    adapter, whole, apart = adapter_for(SLIPPERY), tmp_path / "whole", tmp_path / "apart"
    own_task = task(**settings)
    train(own_task, adapter, None, whole, lambda _: None)
    agent = Assignment(own_task, None, apart, until=1)
    train_together([agent], adapter, lambda _: None)
    for round_number in range(1, ROUNDS):
        for shard in (1, 0):
            place = tmp_path / f"{round_number}.{shard}"
            place.mkdir()
            sample_shard(agent, adapter, shard).write(place)
        sampled = [SampledShard.read(tmp_path / f"{round_number}.{shard}") for shard in range(2)]
        train_together([replace(agent, until=round_number + 1, sampled=sampled)], adapter, lambda _: None)
    assert (apart / MODEL).read_bytes() == (whole / MODEL).read_bytes()
    assert read_curve(apart).equals(read_curve(whole))
    (place / ARRAYS).write_bytes((place / ARRAYS).read_bytes()[:-1])
    with pytest.raises(DataError, match=r"not a shard of proposals \(.*\)\. Sample it again\."):
        SampledShard.read(place)


def test_each_shard_and_round_has_its_own_random_streams() -> None:
    adapter = adapter_for(GRID)
    learner, whole = begun(adapter, n_envs=32, shards=2)
    whole.close()
    envs = make_envs(GRID, adapter, 32, 0, None, shards=2)
    observation, rollout = envs.reset(), learner.rollout(envs)
    assert not np.array_equal(observation[:16], observation[16:])
    drawn = [rng.random() for _ in range(2) for *_, rng in learner._shards(envs, observation, rollout)]
    assert len(set(drawn)) == 4


def test_proposals_of_other_environments_are_refused(tmp_path: Path) -> None:
    adapter, agent = adapter_for(SLIPPERY), Assignment(task(), None, tmp_path / "a", until=1)
    train_together([agent], adapter, lambda _: None)
    shards = [sample_shard(agent, adapter, number) for number in range(2)]
    for wrong, sentence in (
        (replace(shards[0], backend="envpool"), "sampled in 16 environments of envpool, but here are 16 of gymnasium"),
        (replace(shards[0], written=[*reversed(shards[0].written)]), "Episodes end at other steps than when proposals"),
    ):
        with pytest.raises(DataError, match=sentence):
            train_together([replace(agent, until=2, sampled=[wrong, shards[1]])], adapter, lambda _: None)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"language_model": {"n_envs": 32, "shards": 3}}, "has n_envs 32, which shards 3 do not divide equally"),
        ({"glam": {"shards": 2}}, r"glam\.shards is unknown"),
    ],
)
def test_invalid_shards_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ParamsError, match=sentence):
        parse_params({"agent": {"algorithm": next(iter(settings)), **settings}}, "params")
