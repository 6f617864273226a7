"""The table of docs/rewards.md: each way in which a language model takes part is an arm, and none is missing."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from laurel.params import parse_params
from laurel.params.rewards import METHODS, method_of
from laurel.stages.preflight import check_run
from minimal_params import MINIMAL
from tiny_project import REPOSITORY

PAGE = (REPOSITORY / "docs" / "rewards.md").read_text(encoding="utf-8")
ARMS = re.findall(r"(?m)^\|[^`\n]+\| `(\{.+\})` \|", PAGE)
TASKS = {"id": "laurel/Tasks-v0", "kwargs": {"tasks": ["MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-6x6-v0"]}}
STORED = {"stored": {"path": "runs/a", "name": "preference"}}
BESIDE = {"shuffled_labels", "random_reward", "novelty", "rnd", "length", "oracle", "similarity"}
"""Methods without questions: controls, bounds, and the sentence encoder's own rewards."""


def written(arm: dict[str, Any]) -> dict[str, Any]:
    """Return params of a run of the arm, with a chat model as judge and as player."""
    chat = {"annotator": "openai", "openai": {"model": "tiny", "base_url": "http://localhost:1/v1"}}
    env = TASKS if "curriculum" in arm.get("agent", {}) else {"id": "MiniGrid-DoorKey-5x5-v0"}
    rewards = STORED if arm["reward"] == "stored" else {}
    return {**MINIMAL, "env": env, "annotate": {**chat, "judges": {"player": chat}}, "arms": {"own": arm}} | {
        "rewards": rewards
    }


@pytest.mark.parametrize("text", ARMS)
def test_each_is_an_arm_by_params_alone(text: str) -> None:
    arm = yaml.safe_load(text)
    params = parse_params(written(arm), "a test")
    if arm["reward"] != "stored":  # whose run is not there
        check_run(params)
    assert params.resolved_arms["own"].role in ("method", "baseline")


def test_no_method_is_missing() -> None:
    params = [parse_params(written(yaml.safe_load(text)), "a test") for text in ARMS]
    shown = {
        method_of(params_of_run.rewards[name]).kind
        for params_of_run in params
        for arm in params_of_run.arms
        for name in arm.reward
    }
    assert shown | BESIDE == {*METHODS.builtin()}
    assert not shown & BESIDE
