"""RLlib trains on a learned reward: python train_rllib.py, where laurel run has run; pip install 'ray[rllib]'."""

from pathlib import Path

import gymnasium as gym
import numpy as np
from minigrid.wrappers import ImgObsWrapper
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

import laurel

ITERATIONS = 2
SOURCE = Path("data/reward/preference").resolve()  # workers have other working directories


def make(config: dict) -> gym.Env:
    """Make an environment that shows its image as a row, and pays the learned reward."""
    reward = laurel.load_reward(SOURCE)
    env = gym.wrappers.FlattenObservation(ImgObsWrapper(gym.make(reward.env.id)))
    return laurel.RewardWrapper(gym.wrappers.DtypeObservation(env, np.float32), reward)


register_env("paid", make)
config = PPOConfig().environment("paid").env_runners(num_env_runners=0).training(train_batch_size=512)
algorithm = config.build_algo()
for _ in range(ITERATIONS):
    result = algorithm.train()
print(result["env_runners"].get("episode_return_mean"))
