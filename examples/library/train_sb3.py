"""Stable-Baselines3 trains on a learned reward: python train_sb3.py, in a folder where laurel run has run."""

import gymnasium as gym
from minigrid.wrappers import ImgObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import laurel

STEPS = 20_000
reward = laurel.load_reward("data/reward/preference")


def make() -> gym.Env:
    """Make an environment that shows its image as a row, and pays the learned reward."""
    env = gym.wrappers.FlattenObservation(ImgObsWrapper(gym.make(reward.env.id)))
    return laurel.RewardWrapper(env, reward, {"beta": 3.0})


envs = make_vec_env(make, n_envs=8, seed=0)
model = PPO("MlpPolicy", envs, n_steps=64, seed=0).learn(STEPS)
observations = envs.reset()
actions, _ = model.predict(observations)
_, rewards, _, infos = envs.step(actions)
print(rewards[0], infos[0]["laurel"])
