"""TorchRL collects with a learned reward: python train_torchrl.py, where laurel run has run; pip install torchrl."""

import gymnasium as gym
from minigrid.wrappers import ImgObsWrapper
from torchrl.envs import GymWrapper, StepCounter, TransformedEnv

import laurel

STEPS = 200
reward = laurel.load_reward("data/reward/preference")
env = laurel.RewardWrapper(gym.wrappers.FlattenObservation(ImgObsWrapper(gym.make(reward.env.id))), reward)
paid = TransformedEnv(GymWrapper(env), StepCounter())
rollout = paid.rollout(STEPS, break_when_any_done=False)
print(rollout["next", "reward"].sum())
