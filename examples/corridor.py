"""An environment with an adapter of its own, in one file beside params.yaml: `env: {id: "corridor:Corridor-v0"}`."""

import gymnasium as gym

from laurel.envs import EnvAdapter, Transition


class Corridor(gym.Env):
    """Ten cells in a row; the task is to reach the last one."""

    observation_space = gym.spaces.Discrete(10)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place = min(max(self.place + (1 if action else -1), 0), 9)
        return self.place, float(self.place == 9), self.place == 9, False, {}


class CorridorAdapter(EnvAdapter):
    """What happens in the corridor, in words."""

    ids = ("Corridor-v0",)
    description = "A corridor of ten cells."
    goal = "You walk right and reach the end of the corridor."

    def caption(self, step: Transition) -> str:
        if step.terminated:
            return "You reach the end of the corridor."
        moved = step.next_observation - step.observation
        return "You walk right." if moved > 0 else "You walk left." if moved < 0 else "You bump into the wall."


gym.register("Corridor-v0", Corridor, max_episode_steps=50)
