"""Stable-Baselines3's side of cartpole_ppo.py and doorkey_ppo.py: prints its figures as JSON.

Called with `cartpole SEED` or `doorkey SEED STEPS 0|1`, where 1 adds the learned reward. CartPole has the settings of
RL Baselines3 Zoo. DoorKey has those of params.yaml, MiniGrid in a `DummyVecEnv` as its documentation has it, and the
reward in a `VecEnvWrapper`, which captions and shapes by Laurel's own functions a step of all environments at a time.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper, VecMonitor

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reaching import Clock

CARTPOLE_STEPS = 200_000
"""Of the schedules; training stops when the goal is reached."""


class UntilGoal(BaseCallback):
    """Stops training when CartPole is solved."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def _on_step(self) -> bool:
        ended = [(i, info["episode"]["r"]) for i, info in enumerate(self.locals["infos"]) if "episode" in info]
        return not self._clock.reached(ended)


def cartpole(seed: int) -> None:
    """Train until the goal, with the settings of the zoo."""
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    clock = Clock(envs.num_envs)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=32,
        batch_size=256,
        gae_lambda=0.8,
        gamma=0.98,
        n_epochs=20,
        ent_coef=0.0,
        learning_rate=lambda left: left * 0.001,
        clip_range=lambda left: left * 0.2,
        seed=seed,
        device="cpu",
    )
    model.learn(CARTPOLE_STEPS, callback=UntilGoal(clock))
    clock.tell(model.num_timesteps)


class LearnedReward(VecEnvWrapper):
    """Adds the shaped learned reward to the environment's, and returns features as observations."""

    def __init__(self, venv: Any, adapter: Any, reward: Any) -> None:
        import gymnasium as gym

        from laurel.params.training import ShapingParams
        from laurel.rewards.paying import RewardCalculator

        self.adapter, self.shaping = adapter, ShapingParams()
        self.calculator = RewardCalculator(adapter, reward, self.shaping, venv.num_envs) if reward else None
        width = adapter.features(np.zeros((1, adapter.observation_size), adapter.observation_dtype)).shape[1]
        super().__init__(venv, observation_space=gym.spaces.Box(-np.inf, np.inf, (width,), np.float32))

    def reset(self) -> np.ndarray:
        self.before: Any = self.venv.reset()
        return self.adapter.features(self.before)

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        from laurel.envs.base import Transitions

        step: Any = self.venv.step_wait()
        observation, rewards, dones, infos = step
        if self.calculator is not None:
            next_observation, truncated = observation.copy(), np.zeros(len(dones), np.bool_)
            for i in np.flatnonzero(dones):
                next_observation[i], truncated[i] = infos[i]["terminal_observation"], infos[i]["TimeLimit.truncated"]
            taken = Transitions(self.before, self.actions, rewards, next_observation, dones & ~truncated, truncated)
            ends = taken.terminated[None], taken.truncated[None]
            paid = self.calculator.pay(taken, np.ones((1, len(dones)), np.bool_), *ends).shaped[0]
            rewards = self.shaping.extrinsic * rewards + self.shaping.intrinsic * paid
        self.before = observation.copy()
        return self.adapter.features(observation), rewards, dones, infos


def doorkey(seed: int, steps: int, rewarded: bool) -> None:
    """Train for some steps with the settings of params.yaml."""
    import gymnasium as gym
    import minigrid  # noqa: F401 - registers its environments
    from doorkey_task import ENV, reward_of

    from laurel.envs import adapter_for
    from laurel.envs.vector import packed
    from laurel.params.algorithms import PPOParams

    p, adapter = PPOParams(), adapter_for(ENV)
    clock = Clock()
    envs = VecMonitor(DummyVecEnv([lambda: packed(gym.make(ENV.id), adapter)] * p.n_envs))
    envs.seed(seed)
    model = PPO(
        "MlpPolicy",
        LearnedReward(envs, adapter, reward_of(adapter) if rewarded else None),
        learning_rate=p.learning_rate,
        n_steps=p.n_steps,
        batch_size=p.batch_size,
        n_epochs=p.n_epochs,
        gamma=p.gamma,
        gae_lambda=p.gae_lambda,
        ent_coef=p.entropy_coef,
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    clock.tell(model.num_timesteps)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "cartpole":
        cartpole(int(sys.argv[2]))
    else:
        doorkey(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "1")
