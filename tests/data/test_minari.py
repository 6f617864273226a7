import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.data.minari import export
from laurel.data.trajectories import read_trajectories
from laurel.errors import DataError, LaurelError
from laurel.params import parse_params
from laurel.stages.pipeline import STAGE

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")
pytestmark = pytest.mark.filterwarnings("ignore")


def collected(path: Path, env: str) -> Path:
    content = {
        "env": {"id": env, "backend": "gymnasium"},
        "collect": {"steps": 120, "n_envs": 3, "shard_steps": 40},
        "arms": ["extrinsic"],
        "agent": {"seeds": [0], "steps": 1},
        "tracking": {"enabled": False},
    }
    STAGE["collect"].run(parse_params(content, "test"), output=path)
    return path


def flat(observation: Any) -> np.ndarray:
    """An episode's observations, of whatever form, as rows."""
    parts = observation if isinstance(observation, tuple) else [observation]
    return np.concatenate([np.asarray(part).reshape(len(part), -1) for part in parts], axis=1)


@pytest.mark.parametrize(
    "env", ["FrozenLake-v1", "CartPole-v1", "Blackjack-v1", "MiniGrid-Empty-5x5-v0", "Pendulum-v1"]
)
def test_exported_data_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: str) -> None:
    trajectories = collected(tmp_path / "t", env)
    monkeypatch.setenv("MINARI_DATASETS_PATH", "/nowhere")
    counts = export(trajectories, "laurel/test-v0", tmp_path / "sets")
    assert os.environ["MINARI_DATASETS_PATH"] == "/nowhere"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    dataset = minari.load_dataset("laurel/test-v0")
    assert counts == {"episodes": dataset.total_episodes, "steps": 120}
    assert dataset.total_steps == 120
    loaded = iter(dataset)
    for transitions, position in read_trajectories(trajectories):
        for episode in np.unique(position.episode_id):
            part = transitions[position.episode_id == episode]
            other = next(loaded)
            assert len(other.rewards) == len(part)
            assert other.rewards.sum() == pytest.approx(part.reward.sum())
            np.testing.assert_array_equal(other.actions, part.action)
            np.testing.assert_array_equal(flat(other.observations)[:-1], part.observation)
            np.testing.assert_array_equal(flat(other.observations)[1:], part.next_observation)
            np.testing.assert_array_equal(other.terminations, part.terminated)
            # episodes that collection cut off are marked truncated; the rest is unchanged
            np.testing.assert_array_equal(other.truncations[:-1], part.truncated[:-1])
            assert other.truncations[-1] == (not part.terminated[-1])
    assert next(loaded, None) is None
    assert all(dataset.action_space.contains(action) for action in dataset[0].actions)
    dataset.recover_environment().close()


class Pictures(gym.Env[Any, Any]):
    """Noise to look at."""

    def __init__(self) -> None:
        image = gym.spaces.Box(0, 255, (32, 32, 3), np.uint8)
        self.observation_space = gym.spaces.Dict({"image": image, "n": gym.spaces.Discrete(3)})
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._look(), 1.0, bool(self.np_random.random() < 0.1), False, {}

    def _look(self) -> Any:
        image = self.np_random.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        return {"image": image, "n": self.np_random.integers(3)}


def test_pictures_in_dicts_are_not_blurred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gym.registry, "Pictures-v0", gym.envs.registration.EnvSpec("Pictures-v0", Pictures))
    trajectories = collected(tmp_path / "t", "Pictures-v0")
    export(trajectories, "pictures-v0", tmp_path / "sets")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    seen = minari.load_dataset("pictures-v0")[0].observations
    (transitions, position), *_ = read_trajectories(trajectories)
    rows = transitions.observation[position.episode_id == 0]
    both = np.concatenate([seen["image"].reshape(len(rows) + 1, -1), seen["n"].reshape(-1, 1)], axis=1)
    np.testing.assert_array_equal(both[:-1], rows)


class Speaking(Pictures):
    """Says something, too, which trajectories do not keep."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Dict({"n": gym.spaces.Discrete(3), "said": gym.spaces.Text(9)})

    def _look(self) -> Any:
        return {"n": self.np_random.integers(3), "said": "hello"}


def test_observations_without_their_texts_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gym.registry, "Speaking-v0", gym.envs.registration.EnvSpec("Speaking-v0", Speaking))
    trajectories = collected(tmp_path / "t", "Speaking-v0")
    export(trajectories, "speaking-v0", tmp_path / "sets")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    (transitions, position), *_ = read_trajectories(trajectories)
    seen = minari.load_dataset("speaking-v0")[0].observations
    np.testing.assert_array_equal(seen[:-1], transitions.observation[position.episode_id == 0])


def test_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blackjack's tuples come back as such; MiniGrid packs in a way of its own and stays packed."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    for env, kind in (("Blackjack-v1", "Tuple"), ("MiniGrid-Empty-5x5-v0", "Box")):
        name = f"{kind.lower()}-v0"
        export(collected(tmp_path / kind, env), name, tmp_path / "sets")
        assert type(minari.load_dataset(name).observation_space).__name__ == kind


@pytest.mark.parametrize("name", ["foo", "foo-v", "a/foo-v0", "/foo-v0", "../foo-v0", "a b-v0", "foo-v0/", "-v0", ""])
def test_a_name_that_minari_does_not_allow_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    sentence = rf'"{re.escape(name)}" is not a name .*: write NAME-vN .*as in "doorkey/random-v0"\.$'
    with pytest.raises(DataError, match=sentence):
        export(tmp_path / "no trajectories", name, tmp_path / "sets")
    assert not (tmp_path / "sets").exists()


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    trajectories = collected(tmp_path / "t", "FrozenLake-v1")
    export(trajectories, "a-v0", tmp_path / "sets")
    with pytest.raises(DataError, match="exists already"):
        export(trajectories, "a-v0", tmp_path / "sets")


def test_a_failure_leaves_no_files(tmp_path: Path) -> None:
    trajectories = collected(tmp_path / "t", "FrozenLake-v1")
    (trajectories / "shard-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="shard-00001"):
        export(trajectories, "a-v0", tmp_path / "sets")
    assert not (tmp_path / "sets" / "a-v0").exists()


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LaurelError, match=r"package minari, which is not installed: pip install 'laurel-rl\[minari\]'"):
        export(tmp_path, "a-v0", tmp_path / "sets")
