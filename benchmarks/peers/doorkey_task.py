"""MiniGrid-DoorKey-8x8 with a reward for each caption: the task of both sides of doorkey_ppo.py."""

from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import Captioner
from laurel.params import EnvParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import ScoredCaptions
from laurel.rewards.methods.random_reward import drawn

ENV = EnvParams(id="MiniGrid-DoorKey-8x8-v0")


def reward_of(adapter: EnvAdapter) -> Reward:
    """Return a reward for every caption; a learned one is looked up in the same table."""
    texts = list(Captioner(adapter, enumerate_events=True).texts)
    return ScoredCaptions.of(texts, drawn(texts, 0)).reward(0.5, lambda new: drawn(new, 0))
