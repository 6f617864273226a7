"""Environments so small that their values are known by heart.

After Andy Jones, "Debugging RL, without the agonizing pain" (andyljones.com/posts/rl-debugging.html). Each
isolates one thing that an agent must get right; together they say which one it gets wrong.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Probe(gym.Env[int, Any]):
    """Observes one of `n_observations` numbers; `outcome` says reward, next observation and whether it is the end."""

    n_observations = 1
    random_start = False

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Discrete(self.n_observations)
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(1)
        self.observation = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation = int(self.np_random.integers(self.n_observations)) if self.random_start else 0
        return self.observation, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        reward, self.observation, terminated = self.outcome(action)
        return self.observation, reward, terminated, False, {}

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        raise NotImplementedError


class OneStep(Probe):
    """One observation, one action, reward 1, the end: the value is 1."""

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        return 1.0, 0, True


class RewardByObservation(Probe):
    """The reward is -1 or 1 as the observation is 0 or 1: the value follows the observation."""

    n_observations = 2
    random_start = True

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        return 2.0 * self.observation - 1.0, self.observation, True


class RewardAtEnd(Probe):
    """Two steps, reward 1 after the second: the first is worth gamma."""

    n_observations = 2

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        return float(self.observation), 1, self.observation == 1


class RewardByAction(Probe):
    """Action 1 is paid 1, action 0 is paid -1."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Discrete(2)

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        return 2.0 * int(action) - 1.0, 0, True


class RewardByBoth(Probe):
    """The action that equals the observation is paid 1, the other -1."""

    n_observations = 2
    random_start = True

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Discrete(2)

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        return 1.0 if int(action) == self.observation else -1.0, self.observation, True


class Steady(Probe):
    """Reward 1 a step without end; under a time limit the value is still 1 / (1 - gamma)."""

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        return 1.0, 0, False


class Countdown(Probe):
    """Reward 1 a step for `STEPS` steps, then the end; the observation counts them.

    The observation STEPS is only ever a final one.
    """

    STEPS = 3
    n_observations = STEPS + 1

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        return 1.0, self.observation + 1, self.observation + 1 == self.STEPS


class Targets(Probe):
    """A continuous action is paid minus its squared distance to -0.5 or 0.5, as the observation says."""

    n_observations = 2
    random_start = True

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        return -((float(action[0]) - (self.observation - 0.5)) ** 2), self.observation, True


class Recall(Probe):
    """What is seen first, 0 or 1, is the action that is paid three steps later; between them 2 is seen.

    Who does not remember earns 0 on average.
    """

    STEPS = 3
    n_observations = 3

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Discrete(2)
        self.first = self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.first, self.t = int(self.np_random.integers(2)), 0
        self.observation = self.first
        return self.observation, {}

    def outcome(self, action: Any) -> tuple[float, int, bool]:
        self.t += 1
        over = self.t > self.STEPS
        return (1.0 if int(action) == self.first else -1.0) if over else 0.0, 2, over


class Bar(gym.Env[dict[str, Any], Any]):
    """A bright bar somewhere in a picture stands upright or lies flat, and beside it is a number, 0 or 1.

    The action that is paid is 2 * number + flat. No pixel tells how the bar lies.
    """

    SIZE = 16

    def __init__(self) -> None:
        picture = gym.spaces.Box(0, 255, (self.SIZE, self.SIZE, 1), np.uint8)
        self.observation_space = gym.spaces.Dict({"number": gym.spaces.Discrete(2), "picture": picture})
        self.action_space = gym.spaces.Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        flat, number = self.np_random.integers(2, size=2)
        y, x = self.np_random.integers(self.SIZE - 8, size=2)
        picture = np.zeros((self.SIZE, self.SIZE, 1), dtype=np.uint8)
        if flat:
            picture[y + 4, x : x + 8] = 255
        else:
            picture[y : y + 8, x + 4] = 255
        self.best = int(2 * number + flat)
        self.observation = {"number": int(number), "picture": picture}
        return self.observation, {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        return self.observation, 1.0 if int(action) == self.best else -1.0, True, False, {}


PROBES = (
    OneStep,
    RewardByObservation,
    RewardAtEnd,
    RewardByAction,
    RewardByBoth,
    Steady,
    Countdown,
    Targets,
    Recall,
    Bar,
)


def probe_id(probe: type[gym.Env[Any, Any]]) -> str:
    return f"Probe/{probe.__name__}-v0"


for _probe in PROBES:
    if probe_id(_probe) not in gym.registry:
        gym.register(probe_id(_probe), entry_point=_probe, max_episode_steps=100)
