"""Agents for armed bandits, after Sutton & Barto, "Reinforcement Learning", 2nd edition (2018), chapter 2."""

from laurel.agents.bandits.averaging import UCB, RewardAveraging
from laurel.agents.bandits.bounds import Cheater, Random
from laurel.agents.bandits.gradient import Gradient
from laurel.agents.bandits.thompson import BernoulliThompson, GaussianThompson

__all__ = ["UCB", "BernoulliThompson", "Cheater", "GaussianThompson", "Gradient", "Random", "RewardAveraging"]
