"""MiniGrid-DoorKey-8x8 with a reward for each caption: what both sides of doorkey_ppo.py train on."""

from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import Captioner
from laurel.params import EnvParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import random_reward

ENV = EnvParams(id="MiniGrid-DoorKey-8x8-v0")


def reward_of(adapter: EnvAdapter) -> Reward:
    """Return a reward for every caption; a learned one is looked up in the same table."""
    return random_reward(tuple(Captioner(adapter, enumerate_events=True).texts), 0.5, 0)
