from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from laurel.envs.builtin import CATCH
from laurel.envs.builtin.catch import BRIGHT, Catch

LEFT, STAY, RIGHT = range(3)


def test_it_passes_gymnasiums_checks() -> None:
    check_env(gym.make(CATCH).unwrapped, skip_render_check=True)
    assert gym.make(CATCH).observation_space == gym.spaces.Box(0, 255, (10, 5, 1), np.uint8), "as in bsuite"


def test_the_rendering_is_the_enlarged_observation() -> None:
    env = gym.make(CATCH, render_mode="rgb_array")
    check_env(env.unwrapped)
    seen, _ = env.reset(seed=0)
    shown: np.ndarray = env.render()  # type: ignore[assignment]
    assert shown.shape == (320, 160, 3)
    np.testing.assert_array_equal(shown[16::32, 16::32], seen.repeat(3, axis=2))
    np.testing.assert_array_equal(shown[:32, :32], np.full((32, 32, 3), seen[0, 0, 0]))
    assert gym.make(CATCH).render_mode is None


def bright(picture: np.ndarray) -> list[tuple[int, int]]:
    assert set(np.unique(picture)) <= {0, BRIGHT}
    return [(int(row), int(column)) for row, column, _ in np.argwhere(picture)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("aim", [0, 1])
def test_catching_the_ball_is_rewarded_and_missing_it_penalised(seed: int, aim: int) -> None:
    env = Catch(rows=6, columns=5)
    seen, _ = env.reset(seed=seed)
    (_, column), (last, paddle) = bright(seen)
    assert (last, paddle) == (5, 2)
    target = (column + aim) % 5
    for row in range(1, 6):
        move = int(np.sign(target - paddle))
        seen, reward, terminated, truncated, _ = env.step(np.int64(STAY + move))
        paddle += move
        assert bright(seen) == sorted({(row, column), (5, paddle)}), "the ball falls straight down"
        assert (terminated, truncated) == (row == 5, False)
        assert reward == (0.0 if row < 5 else -1.0 if aim else 1.0)


def test_the_paddle_stays_in_the_picture() -> None:
    env = Catch()
    for action, column in ((LEFT, 0), (RIGHT, 4)):
        env.reset(seed=0)
        for _ in range(5):
            seen = env.step(np.int64(action))[0]
        assert bright(seen)[-1] == (9, column)
