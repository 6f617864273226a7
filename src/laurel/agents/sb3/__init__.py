"""Stable-Baselines3 as an engine."""
