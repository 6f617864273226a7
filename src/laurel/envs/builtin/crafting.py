"""The crafting world: collect materials, build tools that collect more, and keep the player fed and rested.

A smaller Crafter (Hafner 2021, arXiv 2109.06780) with 20 achievements, in which all worlds of a batch are stepped by a
few array operations. `crafting_rules` lists what is as in Crafter. Unlike there, cows stand still, there are no
monsters, it is never dark, and plants grow wherever the player is.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from laurel.arrays import Array, BoolArray, ByteArray, DoubleArray, IntArray
from laurel.envs.builtin import crafting_rules as rules
from laurel.envs.builtin.batch import BatchEnv
from laurel.envs.builtin.crafting_maps import make_maps
from laurel.envs.builtin.crafting_rules import ACHIEVEMENTS, ACTIONS, ITEMS, MATERIALS, MOST
from laurel.errors import EnvError

VIEW = (7, 9)
"""Rows and columns of the map in view, centred on the player."""
FACINGS = ("left", "right", "up", "down")
SQUARE = 16
"""Side of a square in rendered pixels."""


MATERIAL = {name: code for code, name in enumerate(MATERIALS)}
ITEM = {name: place for place, name in enumerate(ITEMS)}
ACTION = {name: number for number, name in enumerate(ACTIONS)}
ACHIEVEMENT = {name: number for number, name in enumerate(ACHIEVEMENTS)}
_STEPS = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)])
"""Rows and columns of a step towards each of FACINGS."""
_EDGE = max(VIEW) // 2
"""Width of the margin around a map, so that views never reach beyond the array."""
_WALKABLE = np.isin(MATERIALS, rules.WALKABLE)
_COLLECTS = np.array([ITEM[rules.COLLECT[name].item] if name in rules.COLLECT else -1 for name in MATERIALS])
_REQUIRES = np.array([ITEM.get(getattr(rules.COLLECT.get(name), "requires", None) or "", -1) for name in MATERIALS])
_LEAVES = np.array([MATERIAL[rules.COLLECT[name].leaves if name in rules.COLLECT else name] for name in MATERIALS])
_CHANCE = np.array([rules.COLLECT[name].probability if name in rules.COLLECT else 1.0 for name in MATERIALS])
_COLLECTED = np.array(
    [ACHIEVEMENT[f"collect_{rules.COLLECT[name].item}"] if name in rules.COLLECT else -1 for name in MATERIALS]
)
_HEALTH, _FOOD, _DRINK, _ENERGY = (ITEM[name] for name in rules.VITALS)
_COLOURS = np.array(
    [
        (30, 30, 30), (60, 120, 220), (110, 180, 80), (130, 130, 130), (205, 185, 140), (230, 215, 150), (40, 100, 50),
        (50, 50, 50), (215, 150, 110), (235, 245, 250), (150, 95, 45), (95, 80, 80), (240, 240, 230), (160, 220, 60),
        (230, 90, 120),
    ],
    dtype=np.uint8,
)  # fmt: skip
_PLAYER = np.array((200, 40, 40), dtype=np.uint8)


class Worlds:
    """N worlds at once.

    Args:
        number: N.
        size: rows and columns of each map.
        rng: the only source of random numbers; may be replaced.
    """

    def __init__(self, number: int, size: int, rng: np.random.Generator) -> None:
        side = size + 2 * _EDGE
        self.number, self.size, self.rng = number, size, rng
        self.maps = np.full((number, side, side), MATERIAL["outside"], dtype=np.uint8)
        self.ripe_at = np.zeros((number, side, side), dtype=np.int64)
        self.cow_health = np.zeros((number, side, side), dtype=np.int64)
        self.place = np.zeros((number, 2), dtype=np.int64)
        self.facing = np.zeros(number, dtype=np.int64)
        self.items = np.zeros((number, len(ITEMS)), dtype=np.int64)
        self.sleeping = np.zeros(number, dtype=np.bool_)
        self.unlocked = np.zeros((number, len(ACHIEVEMENTS)), dtype=np.bool_)
        """Achievements of the running episode."""
        self.time = np.zeros(number, dtype=np.int64)
        self._hunger, self._thirst, self._fatigue, self._recovery = np.zeros((4, number))
        self._rows = np.arange(number)
        self._seen = np.indices(VIEW).reshape(2, -1) - np.array(VIEW)[:, None] // 2
        self._beside = np.indices((3, 3)).reshape(2, -1) - 1

    def begin(self, mask: BoolArray) -> None:
        """Begin an episode on a new map in some of the worlds (N,)."""
        if not mask.any():
            return
        inner = slice(_EDGE, _EDGE + self.size)
        self.maps[mask, inner, inner] = make_maps(int(mask.sum()), self.size, self.rng)
        self.ripe_at[mask] = 0
        self.cow_health[mask] = rules.COW_HEALTH
        self.place[mask] = _EDGE + self.size // 2
        self.facing[mask] = FACINGS.index("down")
        self.items[mask] = 0
        self.items[mask, : len(rules.VITALS)] = MOST
        self.sleeping[mask] = False
        self.unlocked[mask] = False
        self.time[mask] = 0
        for counter in (self._hunger, self._thirst, self._fatigue, self._recovery):
            counter[mask] = 0

    def observe(self) -> ByteArray:
        """Return the observations (N, 81): the materials in view row by row, items, facing and whether asleep."""
        place = self.place[:, :, None] + self._seen
        view = self.maps[self._rows[:, None], place[:, 0], place[:, 1]]
        plants = view == MATERIAL["plant"]
        if plants.any():
            ripe = self.ripe_at[self._rows[:, None], place[:, 0], place[:, 1]] < self.time[:, None]
            view = np.where(plants & ripe, MATERIAL["ripe plant"], view)
        rest = np.column_stack([self.items, self.facing, self.sleeping])
        return np.concatenate([view, rest], axis=1, dtype=np.uint8, casting="unsafe")

    def step(self, actions: IntArray) -> tuple[DoubleArray, BoolArray]:
        """Take an action (N,) in each world; return rewards (N,) and whether the player died (N,).

        The reward is 1 in a step that unlocks achievements, plus a tenth of the change in health, as in Crafter.
        """
        health, known = self.items[:, _HEALTH].copy(), self.unlocked.copy()
        self.time += 1
        rested = self.sleeping & (self.items[:, _ENERGY] >= MOST)
        self._unlock("wake_up", rested)
        self.sleeping &= ~rested
        actions = np.where(self.sleeping, ACTION["sleep"], actions)
        ahead = self.place + _STEPS[self.facing]
        before = self._at(self.maps, ahead).astype(np.int64)
        self._do(actions == ACTION["do"], ahead, before)
        self.sleeping |= (actions == ACTION["sleep"]) & (self.items[:, _ENERGY] < MOST)
        self._put(actions, ahead, before)
        self._make(actions)
        self._move(actions)
        self._live()
        np.clip(self.items, 0, MOST, out=self.items)
        change = self.items[:, _HEALTH] - health
        self.sleeping &= change >= 0
        reward = change / 10 + (self.unlocked & ~known).any(axis=1)
        return reward, self.items[:, _HEALTH] <= 0

    def picture(self) -> ByteArray:
        """Return an image (height, width, 3) of the view in the first world."""
        view = self.observe()[0, : VIEW[0] * VIEW[1]].reshape(VIEW)
        picture = _COLOURS[view].repeat(SQUARE, axis=0).repeat(SQUARE, axis=1)
        top, left = (SQUARE * (length // 2) for length in VIEW)
        picture[top + 3 : top + SQUARE - 3, left + 3 : left + SQUARE - 3] = _PLAYER
        return picture

    def _at(self, array: Array, place: IntArray) -> Array:
        return array[self._rows, place[:, 0], place[:, 1]]

    def _set(self, array: Array, mask: BoolArray, place: IntArray, value: Any) -> None:
        array[self._rows[mask], place[mask, 0], place[mask, 1]] = value

    def _unlock(self, achievement: str, mask: BoolArray) -> None:
        self.unlocked[:, ACHIEVEMENT[achievement]] |= mask

    def _move(self, actions: IntArray) -> None:
        direction = actions - ACTION[rules.MOVES[0]]
        moves = (direction >= 0) & (direction < len(FACINGS))
        self.facing = np.where(moves, direction, self.facing)
        target = self.place + _STEPS[self.facing]
        free = moves & _WALKABLE[self._at(self.maps, target)]
        self.place[free] = target[free]

    def _do(self, does: BoolArray, ahead: IntArray, before: IntArray) -> None:
        """Collect, hit or eat what is ahead."""
        tool = _REQUIRES[before]
        able = does & (_COLLECTS[before] >= 0) & ((tool < 0) | (self.items[self._rows, tool] > 0))
        self._thirst[able & (before == MATERIAL["water"])] = 0
        self._set(self.maps, able, ahead, _LEAVES[before[able]])
        able &= self.rng.random(self.number) <= _CHANCE[before]
        self.items[self._rows[able], _COLLECTS[before[able]]] += 1
        self.unlocked[self._rows[able], _COLLECTED[before[able]]] = True

        hit = does & (before == MATERIAL["cow"])
        if hit.any():
            damage = np.ones(self.number, dtype=np.int64)
            for sword, strength in rules.DAMAGE.items():
                damage = np.where(self.items[:, ITEM[sword]] > 0, strength, damage)
            left = self._at(self.cow_health, ahead) - damage
            self._set(self.cow_health, hit, ahead, left[hit])
            eaten = hit & (left <= 0)
            self._set(self.maps, eaten, ahead, MATERIAL["grass"])
            self.items[eaten, _FOOD] += rules.COW_FOOD
            self._hunger[eaten] = 0
            self._unlock("eat_cow", eaten)
        shown_ripe = self._at(self.ripe_at, ahead) < self.time - 1  # in the observation that the player acts on
        ripe = does & (before == MATERIAL["plant"]) & shown_ripe
        self._set(self.ripe_at, ripe, ahead, self.time[ripe] + rules.RIPENS)
        self.items[ripe, _FOOD] += rules.PLANT_FOOD
        self._unlock("eat_plant", ripe)

    def _put(self, actions: IntArray, ahead: IntArray, before: IntArray) -> None:
        for name, recipe in rules.PLACE.items():
            able = (actions == ACTION[f"place_{name}"]) & np.isin(
                before, [MATERIAL[material] for material in recipe.where]
            )
            able &= self._has(recipe)
            if able.any():
                self._use(recipe, able)
                self._set(self.maps, able, ahead, MATERIAL[name])
                self._set(self.ripe_at, able, ahead, self.time[able] + rules.RIPENS)
                self._unlock(f"place_{name}", able)

    def _make(self, actions: IntArray) -> None:
        if (actions < ACTION[f"make_{rules.TOOLS[0]}"]).all():
            return
        place = self.place[:, :, None] + self._beside
        beside = self.maps[self._rows[:, None], place[:, 0], place[:, 1]]
        near = {name: (beside == MATERIAL[name]).any(axis=1) for name in ("table", "furnace")}
        for name, recipe in rules.MAKE.items():
            able = (actions == ACTION[f"make_{name}"]) & self._has(recipe)
            able &= np.all([near[needed] for needed in recipe.nearby], axis=0)
            self._use(recipe, able)
            self.items[able, ITEM[name]] += 1
            self._unlock(f"make_{name}", able)

    def _has(self, recipe: rules.Recipe) -> BoolArray:
        return np.all([self.items[:, ITEM[name]] >= number for name, number in recipe.uses.items()], axis=0)

    def _use(self, recipe: rules.Recipe, mask: BoolArray) -> None:
        for name, number in recipe.uses.items():
            self.items[mask, ITEM[name]] -= number

    def _live(self) -> None:
        """Update the vitals for a step."""
        asleep = self.sleeping
        pace = np.where(asleep, 0.5, 1.0)
        for counter, vital, limit in ((self._hunger, _FOOD, rules.HUNGER), (self._thirst, _DRINK, rules.THIRST)):
            counter += pace
            exceeded = counter > limit
            counter[exceeded] = 0
            self.items[exceeded, vital] -= 1
        self._fatigue[:] = np.where(asleep, np.minimum(self._fatigue - 1, 0), self._fatigue + 1)
        rested, tired = self._fatigue < -rules.REST, self._fatigue > rules.FATIGUE
        self._fatigue[rested | tired] = 0
        self.items[:, _ENERGY] += rested.astype(np.int64) - tired
        vitals = self.items[:, [_FOOD, _DRINK, _ENERGY]] > 0
        vitals[:, 2] |= asleep
        self._recovery += np.where(vitals.all(axis=1), np.where(asleep, 2.0, 1.0), np.where(asleep, -0.5, -1.0))
        better, worse = self._recovery > rules.RECOVERY, self._recovery < -rules.DECAY
        self._recovery[better | worse] = 0
        self.items[:, _HEALTH] += better.astype(np.int64) - worse


def _observation_space() -> gym.Space[ByteArray]:
    high = np.full(VIEW[0] * VIEW[1] + len(ITEMS) + 2, len(MATERIALS) - 1, dtype=np.uint8)
    high[-len(ITEMS) - 2 :] = [*[MOST] * len(ITEMS), len(FACINGS) - 1, 1]
    return gym.spaces.Box(np.zeros_like(high), high, dtype=np.uint8)


def _checked(size: int) -> int:
    if not 9 <= size <= 256:
        raise EnvError(f"Crafting: size is {size}; a map has from 9 to 256 rows and columns.")
    return size


class Crafting(gym.Env[ByteArray, np.int64]):
    """One crafting world.

    Args:
        size: rows and columns of the map; default 24.
        render_mode: "rgb_array" or None.

    Raises:
        EnvError: the size is not allowed.

    >>> env = Crafting()
    >>> observation, _ = env.reset(seed=0)
    >>> observation.shape
    (81,)
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, *, size: int = 24, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = _observation_space()
        self.action_space = gym.spaces.Discrete(len(ACTIONS))
        self.worlds = Worlds(1, _checked(size), self.np_random)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ByteArray, dict[str, Any]]:
        super().reset(seed=seed)
        self.worlds.rng = self.np_random
        self.worlds.begin(np.ones(1, dtype=np.bool_))
        return self.worlds.observe()[0], {}

    def step(self, action: np.int64) -> tuple[ByteArray, float, bool, bool, dict[str, Any]]:
        rewards, dead = self.worlds.step(np.array([action]))
        return self.worlds.observe()[0], float(rewards[0]), bool(dead[0]), False, {}

    def render(self) -> ByteArray | None:
        return None if self.render_mode is None else self.worlds.picture()


class CraftingVector(BatchEnv):
    """N crafting worlds; the step after an episode's end is a reset.

    Args:
        num_envs: N.
        max_episode_steps: steps after which an episode is truncated; None for no limit.
        size: as in `Crafting`.
    """

    def __init__(self, num_envs: int = 1, max_episode_steps: int | None = None, *, size: int = 24) -> None:
        super().__init__(num_envs, max_episode_steps, _observation_space(), len(ACTIONS))
        self.worlds = Worlds(num_envs, _checked(size), self.np_random)

    def begin(self, mask: BoolArray) -> None:
        self.worlds.rng = self.np_random
        self.worlds.begin(mask)

    def advance(self, actions: IntArray, begins: BoolArray) -> tuple[DoubleArray, BoolArray]:
        rewards, dead = self.worlds.step(actions)
        self.worlds.begin(begins)
        return rewards, dead

    def observe(self) -> ByteArray:
        return self.worlds.observe()
