import os
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from acting import Acting
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter, Transition
from laurel.envs.captioner import Captioner
from laurel.evaluation import animation
from laurel.evaluation.animation import record, side_by_side
from laurel.evaluation.episode import Moment
from laurel.evaluation.rendering import NotRenderedError
from laurel.evaluation.rollout import LearnedReward
from laurel.params import EnvParams
from laurel.params.training import ShapingParams
from laurel.rewards.functions import CaptionReward


class Corridor(gym.Env):
    """Walk right three times; the image's brightness encodes the position."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 5}
    observation_space = gym.spaces.Discrete(4)
    action_space = gym.spaces.Discrete(2)
    broken: object = None

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.place = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        done = self.place == 3
        return self.place, float(done), done, False, {}

    def render(self):
        assert os.environ["SDL_VIDEODRIVER"] == "dummy"
        if isinstance(self.broken, Exception):
            raise self.broken
        return self.broken if self.broken else np.full((40, 80, 3), 60 * self.place, dtype=np.uint8)


class Blind(gym.Env):
    """Knows no render_mode at all."""

    observation_space = Corridor.observation_space
    action_space = Corridor.action_space


class CorridorAdapter(EnvAdapter):
    description = goal = "Walk right."

    def caption(self, transition: Transition) -> str:
        return f"You go from {transition.observation} to {transition.next_observation}." if transition.action else ""

    def succeeded(self, returns, last):
        return returns > 0


@pytest.fixture
def play(monkeypatch):
    gym.register("LaurelCorridor-v0", Corridor, max_episode_steps=10)
    gym.register("LaurelBlind-v0", Blind, max_episode_steps=10)
    adapter = CorridorAdapter("LaurelCorridor-v0", Corridor.observation_space, Corridor.action_space)

    def run(actions, *, env_id="LaurelCorridor-v0", max_steps=20, reward=None, broken=None):
        monkeypatch.setattr(Corridor, "broken", broken)
        queue = iter(actions)

        def act(features):
            assert features.shape == (1, 4)
            return np.array([next(queue)])

        learned = None if reward is None else LearnedReward(reward, ShapingParams(beta=0.0))
        return record(EnvParams(id=env_id), adapter, Acting(act), Captioner(adapter), max_steps, 0, learned)

    yield run
    gym.registry.pop("LaurelCorridor-v0")
    gym.registry.pop("LaurelBlind-v0")


def test_a_recording_shows_the_episode(play):
    asked = []

    def score(texts):
        asked.extend(texts)
        return np.array([float(text[-2]) for text in texts])

    found = play([1, 0, 1, 1, 1], reward=CaptionReward({"You go from 0 to 1.": -1.5}, 0.0, score))
    said = ["You go from 0 to 1.", "You go from 0 to 1.", "You go from 1 to 2.", "You go from 2 to 3."]
    assert [moment.caption for moment in found] == ["", said[0], "", *said[1:]]
    assert [moment.learned for moment in found] == [None, -1.5, None, -1.5, 2.0, 3.0]
    assert asked == said[2:], "what no table holds is scored, once for each"
    assert [moment.total for moment in found] == [0.0] * 5 + [1.0]
    assert [int(moment.picture[0, 0, 0]) for moment in found] == [0, 60, 0, 60, 120, 180]
    assert found[0].picture.shape == (160, 320, 3)
    last = found[-1]
    assert (last.step, last.terminated, last.success, last.outcome) == (5, True, True, "solved")


def test_a_cut_recording_is_marked(play):
    *before, last = play([0] * 20, max_steps=5)
    assert (last.step, last.terminated, last.truncated, last.success) == (5, False, False, None)
    assert last.outcome == "cut after 5 steps"
    assert [moment.learned for moment in (*before, last)] == [None] * 6


def test_time_limit_ends_the_episode_unsolved(play):
    last = play([0] * 20)[-1]
    assert (last.step, last.truncated, last.success, last.outcome) == (10, True, False, "not solved")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (gym.error.DependencyNotInstalled("pygame is not installed"), "needs a package to render"),
        (ModuleNotFoundError("No module named 'pygame'"), "needs a package to render"),
        ("text, not a picture", "renders no rgb_array"),
    ],
)
def test_environments_that_cannot_render_are_reported(play, broken, words):
    with pytest.raises(NotRenderedError, match=words) as error:
        play([0] * 20, broken=broken)
    assert str(error.value).endswith((".", ")"))


@pytest.mark.filterwarnings("error")
def test_environments_without_render_modes_are_reported(play):
    with pytest.raises(NotRenderedError, match="LaurelBlind-v0"):
        play([0] * 20, env_id="LaurelBlind-v0")


def test_the_video_driver_variable_is_restored(play, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    play([0] * 20)
    assert os.environ["SDL_VIDEODRIVER"] == "x11"
    monkeypatch.delenv("SDL_VIDEODRIVER")
    play([0] * 20)
    assert "SDL_VIDEODRIVER" not in os.environ


def test_the_animation_loops_pauses_at_the_end_and_shows_both_episodes(play, tmp_path):
    before, after = play([0] * 20), play([1, 1, 1])
    path = tmp_path / "episode.webp"
    side_by_side(before, after, path)
    with Image.open(path) as image:
        assert image.n_frames == 11  # the longer one, and where it began
        assert image.info["loop"] == 0
        image.seek(10)
        image.load()
        assert image.info["duration"] >= 2000
        last = np.asarray(image.convert("RGB"))
    middle = animation.HEAD + 80
    assert tuple(last[middle, animation.MARGIN + 160]) == (0, 0, 0)
    assert tuple(last[middle, animation.MARGIN + animation.SIDE + animation.GAP + 160]) == (180, 180, 180)


def test_noisy_pictures_still_give_a_small_file(tmp_path):
    rng = np.random.default_rng(0)
    base = rng.integers(0, 255, (320, 320, 3), dtype=np.uint8)
    pictures = [np.roll(base, 7 * t, axis=1) for t in range(13)]
    noisy = [Moment(step, picture, caption="You see noise.") for step, picture in enumerate(pictures)]
    side_by_side(noisy, noisy, tmp_path / "noise.webp")
    assert (tmp_path / "noise.webp").stat().st_size < animation.MAX_BYTES


def test_a_real_environment_is_shown(tmp_path):
    env = EnvParams(id="MiniGrid-Empty-Random-5x5-v0")
    adapter = adapter_for(env)
    rng = np.random.default_rng(0)
    found = record(env, adapter, Acting(lambda _: rng.integers(7, size=1)), Captioner(adapter), 8, 1, None)
    again = record(env, adapter, Acting(lambda _: np.array([0])), Captioner(adapter), 1, 1, None)
    assert found[0].picture.shape == (320, 320, 3)
    assert np.array_equal(found[0].picture, again[0].picture)  # the same seed begins in the same state
    assert any(moment.caption for moment in found)
