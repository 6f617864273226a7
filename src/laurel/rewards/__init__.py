"""Reward functions of captions, learned and otherwise, and how they are shaped."""
