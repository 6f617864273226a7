"""Craftax Classic, Crafter in JAX, in one file beside params.yaml: `env: {id: "craftax_classic:CraftaxClassic-v0"}`.

Needs `pip install craftax`. Captions say which of Crafter's 22 achievements a step unlocked, or that health was lost.
"""

import functools

import gymnasium as gym
import numpy as np

from laurel.envs import EnvAdapter

ACHIEVEMENTS = (
    "You collect wood.",
    "You place a table.",
    "You eat a cow.",
    "You collect a sapling.",
    "You drink water.",
    "You make a wood pickaxe.",
    "You make a wood sword.",
    "You place a sapling.",
    "You defeat a zombie.",
    "You collect stone.",
    "You place stone.",
    "You eat a ripe plant.",
    "You defeat a skeleton.",
    "You make a stone pickaxe.",
    "You make a stone sword.",
    "You wake up, rested.",
    "You place a furnace.",
    "You collect coal.",
    "You collect iron.",
    "You collect a diamond.",
    "You make an iron pickaxe.",
    "You make an iron sword.",
)
"""In Craftax's order."""
ACTIONS = (
    *("noop", "move left", "move right", "move up", "move down", "do", "sleep"),
    *("place stone", "place table", "place furnace", "place plant"),
    *("make wood pickaxe", "make stone pickaxe", "make iron pickaxe"),
    *("make wood sword", "make stone sword", "make iron sword"),
)
HURT, DIED = 1 << len(ACHIEVEMENTS), 2 << len(ACHIEVEMENTS)


@functools.cache
def compiled():
    """Return the game, compiled once for all environments of a process. JAX must not be imported before a fork."""
    import jax
    from craftax.craftax_env import make_craftax_env_from_name

    game = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=False)
    reset, step = jax.jit(game.reset_env), jax.jit(game.step_env)
    return jax.random.PRNGKey, reset, step, game.default_params


class CraftaxClassic(gym.Env):
    """One world; the reward is Crafter's, and an observation has 1,345 numbers."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1345,), np.float32)
    action_space = gym.spaces.Discrete(len(ACTIONS))

    def _key(self):
        make_key, *_ = compiled()
        return make_key(int(self.np_random.integers(2**31)))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        _, reset, _, params = compiled()
        observation, self.state = reset(self._key(), params)
        return np.asarray(observation), {"event": 0}

    def step(self, action):
        _, _, step, params = compiled()
        before = self.state
        observation, self.state, reward, done, _ = step(self._key(), before, int(action), params)
        unlocked = np.flatnonzero(np.asarray(self.state.achievements) & ~np.asarray(before.achievements))
        event = int((1 << unlocked).sum()) + HURT * bool(self.state.player_health < before.player_health)
        return np.asarray(observation), float(reward), bool(done), False, {"event": event + DIED * bool(done)}


class CraftaxClassicAdapter(EnvAdapter):
    """What a step unlocked, in words."""

    ids = ("CraftaxClassic-v0",)
    description = (
        "A world of meadows, water, mountains and caves, seen from above. The agent collects wood, stone, coal, iron "
        "and diamonds, makes tools beside a table and a furnace, fights zombies and skeletons, and must eat, drink and "
        "sleep."
    )
    goal = "You collect resources, make tools, eat and drink, and defeat zombies."
    anti_goal = "You wander about, lose health and die."
    action_names = ACTIONS
    info_fields = {"event": "int64"}  # noqa: RUF012

    def encode(self, transitions):
        return transitions.info["event"] * len(ACTIONS) + transitions.action

    def describe(self, event):
        happened, action = divmod(int(event), len(ACTIONS))
        said = [text for number, text in enumerate(ACHIEVEMENTS) if happened >> number & 1]
        if happened & DIED:
            said.append("You die.")
        elif happened & HURT:
            said.append("You lose health.")
        return " ".join(said) or f"You choose: {ACTIONS[action]}."

    def oracle(self, caption):
        """Pay for what a step unlocked; dying costs as much."""
        return float(sum(text in caption for text in ACHIEVEMENTS)) - ("You die." in caption)


gym.register("CraftaxClassic-v0", CraftaxClassic, max_episode_steps=1000)  # Craftax itself ends after 10,000
