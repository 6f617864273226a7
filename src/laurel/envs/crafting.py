"""The crafting world: captions of what a step collected, placed, made or ate, or why it failed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np

from laurel.arrays import Array, FloatArray, IntArray
from laurel.envs.base import EnvAdapter, Example, Transitions
from laurel.envs.builtin import crafting_rules as rules
from laurel.envs.builtin.crafting import ACTION, FACINGS, ITEM, MATERIAL, VIEW
from laurel.envs.builtin.crafting_rules import ACTIONS, ITEMS, MATERIALS, MOST

SEEN = VIEW[0] * VIEW[1]
CENTRE = SEEN // 2
AHEAD = np.array([CENTRE - 1, CENTRE + 1, CENTRE - VIEW[1], CENTRE + VIEW[1]])
"""Index in the view of the square that the player faces, by facing."""
BESIDE = np.array([CENTRE + row * VIEW[1] + column for row, column in product((-1, 0, 1), (-1, 0, 1))])
LOW = 3
"""A vital at or below this is mentioned in the caption."""

_NOUNS = {"tree": "a tree", "diamond": "a diamond", "table": "a table", "furnace": "a furnace", "cow": "a cow"}
_NOUNS |= {"plant": "a plant that is not ripe", "ripe plant": "a ripe plant", "outside": "the end of the world"}
_COLLECTED = {"drink": "You drink water.", "diamond": "You collect a diamond.", "sapling": "You collect a sapling."}
_NEEDS = {"food": "hungry", "drink": "thirsty", "energy": "tired", "health": "badly hurt"}

_GOALS = {
    "tools": "You make a tool, or collect what tools are made of.",
    "farmer": "You collect a sapling, place a sapling, and eat a ripe plant. You do not care about tools.",
    "peace": "You never hit a cow and never eat a cow.",
}

Verb = tuple[str, bool]
"""The caption of a step, and whether it is an achievement."""


def _named(name: str) -> str:
    """Name a material or an item, with its article.

    >>> _named("wood_pickaxe")
    'a wood pickaxe'
    """
    if name in rules.TOOLS:
        return f"a{'n' * name.startswith('iron')} {name.replace('_', ' ')}"
    return _NOUNS.get(name, name)


def _verbs() -> list[Verb]:
    """List the captions that a step may have, in a fixed order: their numbers are stored."""
    verbs = [("You wait.", False), ("You sleep.", False), ("You are not tired enough to sleep.", False)]
    verbs += [(f"You walk over {_named(name)}.", False) for name in MATERIALS]
    verbs += [(f"You turn towards {_named(name)}.", False) for name in MATERIALS]
    for name in MATERIALS:
        if name in rules.COLLECT:
            item = rules.COLLECT[name].item
            verbs.append((_COLLECTED.get(item, f"You collect {item}."), True))
        else:
            verbs.append((f"You eat {_named(name)}.", True))
    for name in MATERIALS:
        tool = rules.COLLECT[name].requires if name in rules.COLLECT else None
        if tool:
            verbs.append((f"You hit {_named(name)} in vain: it takes {_named(tool)}.", False))
        elif name == "cow":
            verbs.append(("You hit a cow.", False))
        elif name == "grass":
            verbs.append(("You search the grass and find nothing.", False))
        else:
            verbs.append((f"You can do nothing with {_named(name)}.", False))
    for verb, names in (("place", rules.PLACED), ("make", rules.TOOLS)):
        nouns = ["a sapling" if name == "plant" else _named(name) for name in names]
        verbs += [(f"You {verb} {noun}.", True) for noun in nouns]
        verbs += [(f"You try to {verb} {noun}, but lack what it takes.", False) for noun in nouns]
    return [*verbs, ("You wake up, rested.", True), ("You lose health.", False), ("You die.", False)]


VERBS = _verbs()
_M = len(MATERIALS)
WAIT, SLEEP, AWAKE, WALK, TURN, GAIN, VAIN = 0, 1, 2, 3, 3 + _M, 3 + 2 * _M, 3 + 3 * _M
PLACE = 3 + 4 * _M
MAKE = PLACE + 2 * len(rules.PLACED)
WAKE, HURT, DIE = len(VERBS) - 3, len(VERBS) - 2, len(VERBS) - 1
_GOOD = np.array([good for _, good in VERBS])
_WALKABLE = np.isin(MATERIALS, rules.WALKABLE)


class CraftingAdapter(EnvAdapter):
    """An event is what the step achieved, or that the player was hurt or died in it, or else what it did."""

    ids = ("laurel/Crafting-v*",)
    description = (
        "A world of meadows, water and mountains, seen from above. The agent walks, collects wood, stone, coal, iron "
        "and diamonds, places a table and a furnace, makes tools beside them that let it collect more, plants "
        "saplings, and must eat, drink and sleep to live."
    )
    goal = "You collect resources, make tools, and eat and drink."
    anti_goal = "You wander about, fail at what you try, lose health and die."
    goals = _GOALS
    action_names = tuple(name.replace("_", " ") for name in ACTIONS)
    example = Example(
        "You make a wood pickaxe.", "You turn towards a tree.", "A pickaxe lets the agent collect stone and coal."
    )
    _shape = (len(VERBS), len(ACTIONS) + 1)

    def features(self, observation: Array) -> FloatArray:
        """Turn observations (N, 81) into a bit for each material of each square, items from 0 to 1, and the facing."""
        view = np.eye(_M, dtype=np.float32)[observation[:, :SEEN]].reshape(len(observation), -1)
        items = observation[:, SEEN : SEEN + len(ITEMS)].astype(np.float32) / MOST
        facing = np.eye(len(FACINGS), dtype=np.float32)[observation[:, -2]]
        return np.concatenate([view, items, facing, observation[:, -1:].astype(np.float32)], axis=1)

    def encode(self, transitions: Transitions) -> IntArray:
        before, after = transitions.observation.astype(np.int64), transitions.next_observation.astype(np.int64)
        had, has = before[:, SEEN : SEEN + len(ITEMS)], after[:, SEEN : SEEN + len(ITEMS)]
        asleep, rested = before[:, -1] > 0, had[:, ITEM["energy"]] >= MOST
        action = np.where(asleep & ~rested, ACTION["sleep"], transitions.action)
        facing = before[:, -2]
        direction = action - ACTION["move_left"]
        moves = (direction >= 0) & (direction < len(FACINGS))
        rows = np.arange(len(before))
        faced = before[rows, AHEAD[np.where(moves, direction, facing)]]
        verb = np.full(len(before), WAIT)
        verb = np.where(moves, np.where(_WALKABLE[faced], WALK, TURN) + faced, verb)
        verb = np.where(action == ACTION["sleep"], np.where(rested, AWAKE, SLEEP), verb)
        does = action == ACTION["do"]
        left = after[rows, AHEAD[facing]]
        gained = self._gained(faced, had, has, left)
        verb = np.where(does, np.where(gained, GAIN, VAIN) + faced, verb)
        near = {name: (before[:, BESIDE] == MATERIAL[name]).any(axis=1) for name in ("table", "furnace")}
        for number, (name, recipe) in enumerate({**rules.PLACE, **rules.MAKE}.items()):
            placed = number < len(rules.PLACED)
            able = np.all([had[:, ITEM[item]] >= amount for item, amount in recipe.uses.items()], axis=0)
            if placed:
                able &= np.isin(faced, [MATERIAL[material] for material in recipe.where])
                first, count, place = PLACE, len(rules.PLACED), number
            else:
                able &= np.all([near[needed] for needed in recipe.nearby], axis=0)
                first, count, place = MAKE, len(rules.TOOLS), number - len(rules.PLACED)
            chosen = action == ACTION[f"{'place' if placed else 'make'}_{name}"]
            verb = np.where(chosen, first + np.where(able, 0, count) + place, verb)
        verb = np.where(_GOOD[verb] | ~(asleep & rested), verb, WAKE)
        verb = np.where(_GOOD[verb] | (has[:, ITEM["health"]] >= had[:, ITEM["health"]]), verb, HURT)
        verb = np.where(_GOOD[verb] | ~transitions.terminated, verb, DIE)
        named = transitions.action + 1 if self.with_action else np.zeros_like(verb)
        return np.ravel_multi_index((verb, named), self._shape).astype(np.int64)

    @staticmethod
    def _gained(faced: IntArray, had: IntArray, has: IntArray, left: IntArray) -> Array:
        """Say where the action `do` in front of a material was an achievement."""
        gained = np.zeros(len(faced), dtype=np.bool_)
        for name, collect in rules.COLLECT.items():
            tool = collect.requires
            able = np.ones(len(faced), dtype=np.bool_) if tool is None else had[:, ITEM[tool]] > 0
            if collect.probability < 1:
                able = has[:, ITEM[collect.item]] > had[:, ITEM[collect.item]]
            gained |= (faced == MATERIAL[name]) & able
        gained |= (faced == MATERIAL["cow"]) & (left == MATERIAL["grass"])
        return gained | (faced == MATERIAL["ripe plant"])

    def describe(self, event: int) -> str:
        verb, action = (int(digit) for digit in np.unravel_index(event, self._shape))
        return f"You choose to {self.action_names[action - 1]}. {VERBS[verb][0]}" if action else VERBS[verb][0]

    def events(self) -> Iterable[int]:
        for verb in filter(_can_happen, range(len(VERBS))):
            actions = [action + 1 for action in _actions_of(verb)] if self.with_action else [0]
            for action in actions:
                yield int(np.ravel_multi_index((verb, action), self._shape))

    def describe_observation(self, observation: Any) -> str:
        row = np.asarray(observation).astype(np.int64)
        seen = [_named(MATERIALS[code]) for code in dict.fromkeys(row[:SEEN].tolist())]
        items = dict(zip(ITEMS, row[SEEN : SEEN + len(ITEMS)].tolist(), strict=True))
        had = [f"{n} {name.replace('_', ' ')}" for name, n in items.items() if n and name not in rules.VITALS]
        needs = [word for vital, word in _NEEDS.items() if items[vital] <= LOW]
        faced = _named(MATERIALS[row[AHEAD[row[-2]]]])
        sentences = [f"You see {', '.join(seen)}.", f"You face {faced}.", f"You have {', '.join(had) or 'nothing'}."]
        sentences += [f"You are {' and '.join(needs)}."] if needs else []
        return " ".join([*sentences, *(["You are asleep."] if row[-1] else [])])

    def says_success(self, caption: str) -> bool:
        """Whether a caption reports an achievement; no state counts as the task solved."""
        return self.oracle(caption) > 0

    def oracle(self, caption: str) -> float:
        """Reward an achievement; dying costs as much."""
        return -1.0 if VERBS[DIE][0] in caption else float(any(verb in caption for verb in _ACHIEVED))


def _can_happen(verb: int) -> bool:
    """Leave out impossible events, such as walking over what is not walkable."""
    if WALK <= verb < TURN:
        return bool(_WALKABLE[verb - WALK])
    if TURN <= verb < GAIN:
        return not _WALKABLE[verb - TURN]
    if GAIN <= verb < VAIN:
        return MATERIALS[verb - GAIN] in (*rules.COLLECT, "cow", "ripe plant")
    if VAIN <= verb < PLACE:
        return MATERIALS[verb - VAIN] not in ("tree", "water", "ripe plant")
    return True


def _actions_of(verb: int) -> Iterable[int]:
    """Return the actions after which a verb describes a step."""
    if verb == SLEEP or verb >= WAKE:  # any action while asleep
        return range(len(ACTIONS))
    if verb >= PLACE:
        names = (*rules.PLACED, *rules.PLACED) if verb < MAKE else (*rules.TOOLS, *rules.TOOLS)
        prefix, first = ("place", PLACE) if verb < MAKE else ("make", MAKE)
        return [ACTION[f"{prefix}_{names[verb - first]}"]]
    if verb >= GAIN:
        return [ACTION["do"]]
    if verb >= WALK:
        return [ACTION[name] for name in rules.MOVES]
    return [ACTION["sleep" if verb == AWAKE else "noop"]]


_ACHIEVED = tuple(text for verb, (text, good) in enumerate(VERBS) if good and _can_happen(verb))
