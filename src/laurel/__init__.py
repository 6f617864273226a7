"""Laurel: language-model feedback as reward for reinforcement learning, end to end."""

__version__ = "0.1.0"
