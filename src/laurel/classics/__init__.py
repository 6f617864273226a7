"""Lessons of reinforcement learning on bandits and small worlds, drawn as figures."""
