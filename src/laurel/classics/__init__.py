"""Classic reinforcement-learning experiments on bandits and small environments, drawn as figures."""
