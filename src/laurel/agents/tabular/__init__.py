"""Agents with a table, after Sutton & Barto, "Reinforcement Learning", 2nd edition (2018), chapters 4 to 7."""

from laurel.agents.tabular.agent import TabularAgent
from laurel.agents.tabular.monte_carlo import MonteCarlo, OffPolicyMonteCarlo
from laurel.agents.tabular.n_step import NStepSarsa, TreeBackup
from laurel.agents.tabular.temporal_difference import ExpectedSarsa, QLearning, Sarsa

__all__ = [
    "ExpectedSarsa",
    "MonteCarlo",
    "NStepSarsa",
    "OffPolicyMonteCarlo",
    "QLearning",
    "Sarsa",
    "TabularAgent",
    "TreeBackup",
]
