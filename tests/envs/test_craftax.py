"""The example that brings Craftax: Crafter's rules in JAX, captioned by what a step unlocked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laurel.envs import adapter_for
from laurel.params import EnvParams
from tiny_project import REPOSITORY, UNTRACKED, Project

pytest.importorskip("jax")
pytest.importorskip("craftax")
FOLDER = REPOSITORY / "examples" / "environments"
ID = "craftax_classic:CraftaxClassic-v0"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import craftax_classic  # type: ignore[import-not-found]

    return craftax_classic


def test_names_are_in_craftaxs_order(example: Any) -> None:
    from craftax.craftax_classic.constants import Achievement, Action

    assert [action.name.lower().replace("_", " ") for action in Action] == [
        name.removeprefix("move ") for name in example.ACTIONS
    ]
    for achievement, text in zip(Achievement, example.ACHIEVEMENTS, strict=True):
        doing, *thing = achievement.name.lower().split("_")
        doing = "drink" if thing == ["drink"] else doing
        thing = {"drink": ["water"], "plant": ["sapling"] if doing == "place" else ["plant"]}.get(thing[-1], thing)
        assert all(word in text.lower() for word in (doing, *thing)), text


def test_unlocked_achievements_are_captioned_and_rewarded(example: Any) -> None:
    env, adapter = example.CraftaxClassic(), adapter_for(EnvParams(id=ID))
    told, unlocked = 0.0, 0.0
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    for action in np.random.default_rng(0).integers(len(example.ACTIONS), size=1500):
        before = env.state.player_health
        _, reward, done, _, info = env.step(action)
        caption = adapter.describe(info["event"] * len(example.ACTIONS) + action)
        told += sum(text in caption for text in example.ACHIEVEMENTS)
        gained = reward - 0.1 * float(env.state.player_health - before)
        unlocked += round(gained)
        assert abs(gained - round(gained)) < 1e-5
        assert ("You die." in caption) == done
        if done:
            env.reset()
    assert told == unlocked > 2
    assert np.array_equal(env.reset(seed=0)[0], observation)


def test_a_run_collects_and_captions_it(tmp_path: Path, example: Any) -> None:
    changes = {**UNTRACKED, "env": {"id": ID}, "collect.steps": 600, "collect.n_envs": 4, "arms": ["extrinsic"]}
    project = Project.create(tmp_path / "p", changes)
    (project.path / "craftax_classic.py").write_bytes((FOLDER / "craftax_classic.py").read_bytes())
    for stage in ("collect", "caption"):
        done = project.laurel(stage)
        assert done.returncode == 0, done.stderr
    shown = project.laurel("show", "data/captions").stdout
    assert "You choose: move left." in shown
