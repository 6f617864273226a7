"""Rewards without a run: random draws for each caption, in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from laurel.data.json_file import write_json
from laurel.params import EnvParams, parse_sections
from laurel.params.annotation import MAIN
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.methods.random_reward import drawn
from laurel.rewards.stored import CARD, Described
from tiny_project import UNTRACKED, Project

KNOWN = ["You turn.", "You move forward.", "Nothing happens."]
Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Return what makes a reward for an environment, and returns where it is."""

    def make(env_id: str, *, with_action: bool = False, **env: object) -> Path:
        place = tmp_path / "reward"
        place.mkdir(exist_ok=True)
        settings = parse_sections({"rewards": {"random_reward": {}}}, "test")["rewards"]["random_reward"]
        ScoredCaptions.of(KNOWN, drawn(KNOWN, 7)).save(place, seed=7)
        described = Described(place, "random_reward", settings, EnvParams(id=env_id, **env), with_action, MAIN)
        write_json(place / CARD, described.card())
        return place

    return make


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a learned reward and no agents, all that a trainer of another library needs of it."""
    changes = {**UNTRACKED, "collect.steps": 600, "rewards.preference.max_epochs": 5}
    project = Project.create(tmp_path_factory.mktemp("learned") / "p", changes)
    project.run("collect", "caption", "annotate", "train-reward")
    return project
