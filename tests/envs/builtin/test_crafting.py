"""The crafting world: Crafter's rules, one world as a batch of one, and captions that say what was unlocked."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.builtin import crafting_rules as rules
from laurel.envs.builtin.crafting import (
    _EDGE,
    ACHIEVEMENT,
    ACTION,
    FACINGS,
    ITEM,
    MATERIAL,
    Worlds,
)
from laurel.envs.builtin.crafting_maps import make_maps
from laurel.errors import EnvError
from laurel.params import EnvParams

ID = "laurel/Crafting-v0"


@pytest.fixture
def adapter() -> EnvAdapter:
    return adapter_for(EnvParams(id=ID))


def world(ahead: str = "grass", **items: int) -> Worlds:
    """A world of grass whose player looks down at a material and has some items."""
    made = Worlds(1, 9, np.random.default_rng(0))
    made.begin(np.ones(1, dtype=np.bool_))
    made.maps[0, _EDGE:-_EDGE, _EDGE:-_EDGE] = MATERIAL["grass"]
    made.maps[0, _EDGE + 5, _EDGE + 4] = MATERIAL[ahead]
    for name, number in items.items():
        made.items[0, ITEM[name]] = number
    return made


def act(made: Worlds, *names: str) -> float:
    return sum(float(made.step(np.array([ACTION[name]]))[0][0]) for name in names)


def unlocked(made: Worlds) -> set[str]:
    return {name for name, number in ACHIEVEMENT.items() if made.unlocked[0, number]}


def has(made: Worlds, name: str) -> int:
    return int(made.items[0, ITEM[name]])


CRAFTER_COSTS = {
    "place_stone": {"stone": 1}, "place_table": {"wood": 2}, "place_furnace": {"stone": 4},
    "place_plant": {"sapling": 1},
    "make_wood_pickaxe": {"wood": 1}, "make_stone_pickaxe": {"wood": 1, "stone": 1},
    "make_iron_pickaxe": {"wood": 1, "coal": 1, "iron": 1}, "make_wood_sword": {"wood": 1},
    "make_stone_sword": {"wood": 1, "stone": 1}, "make_iron_sword": {"wood": 1, "coal": 1, "iron": 1},
}  # fmt: skip
CRAFTER_TOOLS = {
    "coal": "wood_pickaxe", "diamond": "iron_pickaxe", "drink": None, "iron": "stone_pickaxe", "sapling": None,
    "stone": "wood_pickaxe", "wood": None,
}  # fmt: skip
CRAFTER_ACHIEVEMENTS = {
    *(f"collect_{item}" for item in CRAFTER_TOOLS), *CRAFTER_COSTS, "defeat_skeleton", "defeat_zombie", "eat_cow",
    "eat_plant", "wake_up",
}  # fmt: skip
"""Facts of Crafter 1.8.3."""


def test_the_rules_that_docs_call_the_same_are_crafters() -> None:
    costs = {f"place_{name}": recipe.uses for name, recipe in rules.PLACE.items()}
    costs |= {f"make_{name}": recipe.uses for name, recipe in rules.MAKE.items()}
    assert costs == CRAFTER_COSTS
    assert {found.item: found.requires for found in rules.COLLECT.values()} == CRAFTER_TOOLS
    assert rules.COLLECT["grass"].probability == 0.1
    assert len(CRAFTER_ACHIEVEMENTS) == 22
    assert CRAFTER_ACHIEVEMENTS - {"defeat_skeleton", "defeat_zombie"} == set(rules.ACHIEVEMENTS)
    assert len(rules.ACHIEVEMENTS) == 20
    near = {name: set(recipe.nearby) for name, recipe in rules.MAKE.items()}
    assert all(needed == ({"table", "furnace"} if "iron" in name else {"table"}) for name, needed in near.items())
    assert not any(recipe.nearby for recipe in rules.PLACE.values())
    assert (rules.HUNGER, rules.THIRST, rules.FATIGUE, rules.RIPENS, rules.COW_HEALTH) == (25, 20, 30, 300, 3)
    assert (rules.COW_FOOD, rules.PLANT_FOOD, rules.MOST) == (6, 4, 9)
    assert [*rules.DAMAGE.values()] == [2, 3, 5]
    order = ["noop", "move_left", "move_right", "move_up", "move_down", "do", "sleep"]
    assert list(rules.ACTIONS) == [*order, *CRAFTER_COSTS], "the actions, in Crafter's order"


@pytest.mark.parametrize(
    ("material", "tool", "item", "leaves"),
    [
        ("tree", None, "wood", "grass"),
        ("stone", "wood_pickaxe", "stone", "path"),
        ("coal", "wood_pickaxe", "coal", "path"),
        ("iron", "stone_pickaxe", "iron", "path"),
        ("diamond", "iron_pickaxe", "diamond", "path"),
    ],
)
def test_requirements_for_collecting(material: str, tool: str | None, item: str, leaves: str) -> None:
    if tool:
        empty = world(material, **{name: 1 for name in rules.TOOLS if name != tool})
        assert act(empty, "do") == 0
        assert not unlocked(empty)
    made = world(material, **({tool: 1} if tool else {}))
    assert act(made, "do") == 1
    assert unlocked(made) == {f"collect_{item}"}
    assert has(made, item) == 1
    assert made.maps[0, _EDGE + 5, _EDGE + 4] == MATERIAL[leaves]


def test_from_wood_to_a_diamond_as_in_crafter() -> None:
    made = world("grass", wood=6, stone=6, coal=2, iron=2, sapling=1)
    paid = act(made, "place_table")
    assert has(made, "wood") == 4
    paid += act(made, "make_wood_pickaxe", "make_stone_pickaxe", "make_stone_sword")
    assert (has(made, "wood"), has(made, "stone")) == (1, 4)
    assert act(made, "make_iron_pickaxe") == 0, "there is no furnace"
    paid += act(made, "move_right", "place_furnace", "make_iron_pickaxe")
    assert (has(made, "stone"), has(made, "iron"), has(made, "coal"), has(made, "wood")) == (0, 1, 1, 0)
    assert paid == 6
    assert act(made, "make_iron_sword") == 0, "the wood is used up"
    assert unlocked(made) == {
        "place_table", "make_wood_pickaxe", "make_stone_pickaxe", "make_stone_sword", "place_furnace",
        "make_iron_pickaxe",
    }  # fmt: skip


def test_an_achievement_counts_once_per_episode() -> None:
    made = world("water", drink=3)
    assert [act(made, "do"), act(made, "do")] == [1, 0]
    assert has(made, "drink") == 5


@pytest.mark.parametrize(("sword", "blows"), [(None, 3), ("wood_sword", 2), ("iron_sword", 1)])
def test_a_cow_needs_several_hits(sword: str | None, blows: int) -> None:
    made = world("cow", food=2, **({sword: 1} if sword else {}))
    paid = [act(made, "do") for _ in range(blows)]
    assert paid == [*[0.0] * (blows - 1), 1.0]
    assert has(made, "food") == 8


def test_a_plant_ripens_and_a_player_gets_hungry_thirsty_and_tired() -> None:
    made = world("grass", sapling=1)
    act(made, "place_plant")
    for _ in range(rules.RIPENS + 1):
        assert MATERIAL["ripe plant"] not in made.observe()[0, :63]
        act(made, "do")
    assert "eat_plant" not in unlocked(made)
    assert MATERIAL["ripe plant"] in made.observe()[0, :63]
    act(made, "do")
    assert "eat_plant" in unlocked(made)
    assert has(made, "drink") == 0
    assert has(made, "energy") == 9 - 301 // 31


def test_sleep_lasts_until_the_energy_is_back() -> None:
    made = world(energy=7)
    act(made, "sleep", *["move_left"] * 21)
    assert made.place[0].tolist() == [_EDGE + 4, _EDGE + 4], "asleep, nothing else is done"
    act(made, "move_left")
    assert unlocked(made) == {"wake_up"}
    assert made.facing[0] == FACINGS.index("left")


def test_a_player_without_drink_dies() -> None:
    made = world(drink=0, health=1)
    total, dead = 0.0, False
    for _ in range(rules.DECAY + 1):
        rewards, died = made.step(np.array([0]))
        total, dead = total + float(rewards[0]), bool(died[0])
    assert dead
    assert total == pytest.approx(-0.1)


def test_maps_have_all_that_is_needed() -> None:
    maps = make_maps(200, 24, np.random.default_rng(0))
    for name, least in {"tree": 10, "water": 10, "coal": 2, "iron": 2, "diamond": 2, "cow": 2, "stone": 20}.items():
        assert ((maps == MATERIAL[name]).sum(axis=(1, 2)) >= least).all(), name
    around = maps[:, 10:15, 10:15]
    assert (around[:, 1:4, 1:4] == MATERIAL["grass"]).all()


def test_one_world_is_a_batch_of_one_and_episodes_differ() -> None:
    single = gym.make(f"laurel.envs.builtin:{ID}").unwrapped
    batch = gym.make_vec(ID, num_envs=1, vectorization_mode="vector_entry_point")
    first, _ = single.reset(seed=3)
    assert (first == batch.reset(seed=3)[0][0]).all()
    for action in np.random.default_rng(0).integers(17, size=300):
        step, many = single.step(action), batch.step(np.array([action]))
        assert (step[0] == many[0][0]).all()
        assert step[1] == many[1][0]
    assert (single.reset()[0] != first).any()


def test_invalid_sizes() -> None:
    with pytest.raises(EnvError, match="size is 3; a map has from 9 to 256"):
        gym.make(ID, size=3)


def test_captions_name_what_is_unlocked(adapter: EnvAdapter) -> None:
    """Well-equipped players try everything: captions report an achievement exactly when it is unlocked."""
    n, rng = 64, np.random.default_rng(1)
    worlds = Worlds(n, 12, rng)
    worlds.begin(np.ones(n, dtype=np.bool_))
    told: set[str] = set()
    for step in range(250):
        if step % 25 == 0:
            worlds.items[:, len(rules.VITALS) :] = rng.integers(0, 6, (n, len(rules.ITEMS) - len(rules.VITALS)))
            worlds.items[:, : len(rules.VITALS)] = rng.integers(1, 10, (n, len(rules.VITALS)))
            worlds.ripe_at[rng.random(worlds.ripe_at.shape) < 0.5] = 0
            worlds.unlocked[:] = False
        before, known = worlds.observe(), worlds.unlocked.copy()
        actions = rng.integers(1, 17, n)
        rewards, dead = worlds.step(actions)
        rows = Transitions(before, actions, rewards.astype(np.float32), worlds.observe(), dead, np.zeros_like(dead))
        for i, event in enumerate(adapter.encode(rows).tolist()):
            caption = adapter.describe(event)
            new = {name for name, number in ACHIEVEMENT.items() if worlds.unlocked[i, number] and not known[i, number]}
            said = {name for name in ACHIEVEMENT if phrase(name) in caption}
            assert not new or new & said, (caption, new)
            assert all(worlds.unlocked[i, ACHIEVEMENT[name]] for name in said), caption
            assert (adapter.oracle(caption) or 0) + ("die" in caption) == bool(said)
            told |= new & said
        worlds.begin(dead)
    assert told >= set(ACHIEVEMENT) - {"collect_diamond", "make_iron_pickaxe", "make_iron_sword", "eat_plant"}


def phrase(achievement: str) -> str:
    doing, _, thing = achievement.partition("_")
    special = {
        "collect_drink": "You drink water.", "wake_up": "You wake up", "eat_plant": "You eat a ripe plant",
        "place_plant": "You place a sapling.",
    }  # fmt: skip
    plain = thing.replace("_", " ")
    return special.get(
        achievement, f"You {doing} {'' if plain in MASS else 'an ' if plain[0] == 'i' else 'a '}{plain}."
    )


MASS = {"wood", "stone", "coal", "iron"}
