"""Rules of the crafting world: what can be collected, placed and made, and what that requires.

The rules are those of Crafter (Hafner 2021, arXiv 2109.06780; version 1.8.3) for all but the monsters: without zombies,
skeletons and lava, 20 of its 22 achievements remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MATERIALS = (
    "outside",
    "water",
    "grass",
    "stone",
    "path",
    "sand",
    "tree",
    "coal",
    "iron",
    "diamond",
    "table",
    "furnace",
    "cow",
    "plant",
    "ripe plant",
)
"""Materials, as numbered in observations. Ripe plants appear in observations only: the map stores a plant and when it
ripens."""
WALKABLE = ("grass", "path", "sand")

VITALS = ("health", "food", "drink", "energy")
TOOLS = ("wood_pickaxe", "stone_pickaxe", "iron_pickaxe", "wood_sword", "stone_sword", "iron_sword")
ITEMS = (*VITALS, "sapling", "wood", "stone", "coal", "iron", "diamond", *TOOLS)
"""Items of the player, each from 0 to MOST."""
MOST = 9

MOVES = ("move_left", "move_right", "move_up", "move_down")
PLACED = ("stone", "table", "furnace", "plant")
ACTIONS = (
    "noop",
    *MOVES,
    "do",
    "sleep",
    *(f"place_{name}" for name in PLACED),
    *(f"make_{name}" for name in TOOLS),
)
"""Names of the actions, in Crafter's order."""


@dataclass(frozen=True, slots=True)
class Collect:
    """Result of the action `do` in front of a material."""

    item: str
    leaves: str
    """Material that replaces it."""
    requires: str | None = None
    """Tool required."""
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """Requirements for placing or making something."""

    uses: Mapping[str, int]
    """Item -> number consumed."""
    nearby: tuple[str, ...] = ()
    """Materials that must be adjacent to the player, diagonals included."""
    where: tuple[str, ...] = field(default=())
    """Materials that it may be placed on."""


COLLECT: Mapping[str, Collect] = {
    "tree": Collect("wood", leaves="grass"),
    "stone": Collect("stone", leaves="path", requires="wood_pickaxe"),
    "coal": Collect("coal", leaves="path", requires="wood_pickaxe"),
    "iron": Collect("iron", leaves="path", requires="stone_pickaxe"),
    "diamond": Collect("diamond", leaves="path", requires="iron_pickaxe"),
    "water": Collect("drink", leaves="water"),
    "grass": Collect("sapling", leaves="grass", probability=0.1),
}
PLACE: Mapping[str, Recipe] = {
    "stone": Recipe({"stone": 1}, where=("grass", "sand", "path", "water")),
    "table": Recipe({"wood": 2}, where=("grass", "sand", "path")),
    "furnace": Recipe({"stone": 4}, where=("grass", "sand", "path")),
    "plant": Recipe({"sapling": 1}, where=("grass",)),
}
MAKE: Mapping[str, Recipe] = {
    "wood_pickaxe": Recipe({"wood": 1}, nearby=("table",)),
    "stone_pickaxe": Recipe({"wood": 1, "stone": 1}, nearby=("table",)),
    "iron_pickaxe": Recipe({"wood": 1, "coal": 1, "iron": 1}, nearby=("table", "furnace")),
    "wood_sword": Recipe({"wood": 1}, nearby=("table",)),
    "stone_sword": Recipe({"wood": 1, "stone": 1}, nearby=("table",)),
    "iron_sword": Recipe({"wood": 1, "coal": 1, "iron": 1}, nearby=("table", "furnace")),
}

ACHIEVEMENTS = (
    *(f"collect_{found.item}" for found in COLLECT.values()),
    *(f"place_{name}" for name in PLACED),
    *(f"make_{name}" for name in TOOLS),
    "eat_cow",
    "eat_plant",
    "wake_up",
)

COW_HEALTH = 3
DAMAGE = {"wood_sword": 2, "stone_sword": 3, "iron_sword": 5}
"""Damage to a cow per blow with the best sword; 1 without one."""
COW_FOOD, PLANT_FOOD = 6, 4
RIPENS = 300
"""Steps after which a plant is ripe."""
HUNGER, THIRST, FATIGUE = 25, 20, 30
"""Steps after which food, drink and energy drop by one; twice as long while asleep, when energy grows instead."""
REST, RECOVERY, DECAY = 10, 25, 15
"""Steps asleep that restore one energy; steps that restore one health if no vital is empty; steps that cost one
otherwise."""
