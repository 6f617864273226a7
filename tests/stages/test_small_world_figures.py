"""What evaluate draws of arms in a grid world, from agents on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file, save_file

from laurel.agents.language_model.calibration import KEPT
from laurel.evaluation.play import Evaluation, Played
from laurel.params import parse_params
from laurel.params.arm_infos import arm_infos
from laurel.rewards.method import Inputs, RewardContext
from laurel.stages.films import small_world_figures
from laurel.training.arms import task_of
from laurel.training.checkpoint import OPTIMIZER
from laurel.training.loop import train
from minimal_params import MINIMAL


def test_paths_are_those_of_the_median_seed_before_and_after(tmp_path: Path) -> None:
    grid = {"id": "laurel/GridWorld-v0", "kwargs": {"size": 3, "goal": [0, 0], "slip": 0.0}}
    arms = {"learned": {"reward": None, "agent": {"algorithm": "tabular"}}, "random_policy": None}
    agent = {"seeds": [0, 1, 2], "steps": 4096}
    params = parse_params({**MINIMAL, "env": grid, "arms": arms, "agent": agent}, "test")
    learned, random = params.resolved_arms["learned"], params.resolved_arms["random_policy"]
    context, place = RewardContext.of(params), tmp_path / "learned"
    train(task_of(params.seed, params.env, learned, 1), context.adapter, None, place, lambda _: None)
    played: list[Played] = [(learned, seed, place if seed == 1 else tmp_path / "none") for seed in (0, 1, 2)]
    played.append((random, 0, None))
    rows = [("learned", 0, 0.1), ("learned", 1, 0.2), ("learned", 2, 0.3), ("random_policy", 0, 0.0)]
    results = pd.DataFrame([{"arm": arm, "seed": seed, "return": mean, "success": 1.0} for arm, seed, mean in rows])
    evaluation = Evaluation(params.seed, context, params.evaluate, Inputs(tmp_path, tmp_path, tmp_path), None)
    infos = arm_infos(params.arms, params.rewards, params.agent)
    figures, measured = small_world_figures(evaluation, infos, context.adapter, played, results)
    (figure,) = figures.values()
    found = measured["learned"]
    assert (found["seed"], found["starts"], found["success"], found["over_shortest"]) == (1, 8, 1.0, 0.0)
    assert found["success_before"] < 1
    before, after = figure.axes
    assert (before.get_title(loc="left"), after.get_title(loc="left")) == ("learned, before", "learned, after")
    assert after.get_xlabel() == "goal from 8 of 8 starts\n0.00 moves over the shortest"
    assert before.get_xlabel() != after.get_xlabel()

    values = {f"{KEPT}{name}": np.array([0.1, 0.2]) for name in ("critic", "values")}
    save_file({**load_file(place / OPTIMIZER), **values}, place / OPTIMIZER)
    assert set(small_world_figures(evaluation, infos, context.adapter, played, results)[0]) == {"paths", "critics"}
