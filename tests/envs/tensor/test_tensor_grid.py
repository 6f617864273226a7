"""DoorKey and Empty as tensors beside minigrid's own: the same transitions and views, and as likely beginnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import minigrid
import numpy as np
import pytest
import torch
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Goal, Key, Wall

from laurel.envs import adapter_for
from laurel.envs.minigrid_codes import FORWARD, PICKUP, TOGGLE
from laurel.envs.tensor import has_tensors, make_tensors
from laurel.envs.tensor.grid import CLOSED, EMPTY, GOAL, KEY, LOCKED, MARGIN, OPEN, WALL, TensorGrid
from laurel.params import EnvParams

CPU = torch.device("cpu")
IDS = [
    *[f"MiniGrid-DoorKey-{size}x{size}-v0" for size in (5, 6, 8, 16)],
    *[f"MiniGrid-Empty-{size}x{size}-v0" for size in (5, 6, 8, 16)],
    *[f"MiniGrid-Empty-Random-{size}x{size}-v0" for size in (5, 6)],
]
THINGS: dict[int, Callable[[], Any]] = {
    EMPTY: lambda: None,
    WALL: Wall,
    KEY: lambda: Key("yellow"),
    OPEN: lambda: Door("yellow", is_open=True),
    CLOSED: lambda: Door("yellow"),
    LOCKED: lambda: Door("yellow", is_locked=True),
    GOAL: Goal,
}
assert minigrid


def make(env_id: str, n_envs: int, seed: int, limit: int | None = None) -> TensorGrid:
    env = EnvParams(id=env_id, max_episode_steps=limit)
    rows = make_tensors(env, adapter_for(env), n_envs, seed, CPU)
    assert isinstance(rows, TensorGrid)
    return rows


def place_of(rows: TensorGrid, row: int) -> tuple[int, int]:
    x, y = divmod(int(rows.state["place"][row]), rows.side)
    return x - MARGIN, y - MARGIN


def cells_of(rows: TensorGrid, row: int) -> np.ndarray:
    return rows.state["cells"][row].view(rows.side, -1)[MARGIN:-MARGIN, MARGIN:-MARGIN].numpy()


def put(env: Any, rows: TensorGrid, row: int) -> None:
    """Make a single environment what a row is."""
    env.grid = Grid(rows.size, rows.size)
    for (x, y), code in np.ndenumerate(cells_of(rows, row)):
        env.grid.set(x, y, THINGS[int(code)]())
    env.agent_pos, env.agent_dir = place_of(rows, row), int(rows.state["facing"][row])
    env.carrying = Key("yellow") if rows.state["carrying"][row] else None
    env.step_count = int(rows.state["age"][row])


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("limit", [None, 40])
def test_transitions_are_those_of_minigrid(env_id: str, limit: int | None) -> None:
    """Of walks that turn and toggle at random, but take what can be taken: keys, doors, steps ahead."""
    n, n_steps = 12, 120
    rng = np.random.default_rng(sum(env_id.encode()))
    rows, adapter = make(env_id, n, 3, limit), adapter_for(EnvParams(id=env_id))
    singles = [gym.make(env_id, **({} if limit is None else {"max_steps": limit})).unwrapped for _ in range(n)]
    for single in singles:
        single.reset(seed=0)
    for i, single in enumerate(singles):
        put(single, rows, i)
    before = rows.observation.clone()
    met: Counter[str] = Counter()
    for _ in range(n_steps):
        ended = rows.state["ended"].numpy().copy()
        action = rng.integers(0, 7, n)
        action = np.where(rng.random(n) < 0.5, _eager(before.numpy()), action)
        step = rows.step(torch.from_numpy(action), rows.draw(1)[0])
        assert (step.valid.numpy() == ~ended).all()
        for i, single in enumerate(singles):
            if ended[i]:
                put(single, rows, i)
                observation, reward, terminated, truncated = single.gen_obs(), 0.0, False, False
                assert rows.state["age"][i] == 0
            else:
                carried, front = single.carrying, single.grid.get(*single.front_pos)
                observation, reward, terminated, truncated, _ = single.step(int(action[i]))
                met["key"] += carried is None and single.carrying is not None
                met["drop"] += carried is not None and single.carrying is None
                met["door"] += isinstance(front, Door) and front.is_open
                met["inside"] += isinstance(single.grid.get(*single.agent_pos), Door)
            np.testing.assert_array_equal(step.observation[i], adapter.pack_one(observation))
            assert step.reward[i].item() == np.float32(reward)
            assert step.terminated[i].item() == terminated
            assert step.truncated[i].item() == (truncated and not terminated)
            met["goal"] += terminated
            met["limit"] += truncated
            assert rows.state["carrying"][i] == (single.carrying is not None)
        before = step.observation.clone()
    wanted = {"limit"} if limit else set()
    if "DoorKey-5" in env_id or "DoorKey-6" in env_id:
        wanted |= {"key", "drop", "door", "inside"}
    if "5x5" in env_id:
        wanted |= {"goal"}
    assert all(met[what] for what in wanted), met


def _eager(observation: np.ndarray) -> np.ndarray:
    """Pick up a key ahead, open a door, else step forward."""
    front = observation[:, :147].reshape(-1, 7, 7, 3)[:, 3, 5]
    shut = (front[:, 0] == 4) & (front[:, 2] > 0)
    return np.where(front[:, 0] == 5, PICKUP, np.where(shut, TOGGLE, FORWARD))


def test_all_views_of_a_grid_are_those_of_minigrid() -> None:
    """From every cell, in every direction, before a door that is open, closed or locked, with the key or without."""
    rows, adapter = make("MiniGrid-DoorKey-6x6-v0", 64, 0), adapter_for(EnvParams(id="MiniGrid-DoorKey-6x6-v0"))
    single: Any = gym.make("MiniGrid-DoorKey-6x6-v0").unwrapped
    single.reset(seed=0)
    n_seen = 0
    for row in range(0, 64, 8):
        wall, door = np.argwhere(cells_of(rows, row) == LOCKED)[0]
        for state in (OPEN, CLOSED, LOCKED):
            for x in range(1, 5):
                for y in range(1, 5):
                    if (x == wall and (y != door or state != OPEN)) or cells_of(rows, row)[x, y] == KEY:
                        continue
                    for facing in range(4):
                        rows.state["cells"][row, rows.at(wall, door)] = state
                        rows.state["place"][row] = rows.at(torch.tensor(x), torch.tensor(y))
                        rows.state["facing"][row] = facing
                        put(single, rows, row)
                        found = rows._observe(rows.state)[row]
                        np.testing.assert_array_equal(found, adapter.pack_one(single.gen_obs()))
                        n_seen += 1
    assert n_seen > 500


Facts = dict[str, Any]


def facts(cells: np.ndarray, place: tuple[int, int], facing: int) -> list[tuple[str, Any]]:
    """What the beginning of an episode looks like, in parts that have few cases, and in pairs of them."""
    key, door = (tuple(np.argwhere(cells == code)[0].tolist()) for code in (KEY, LOCKED))
    parts: Facts = {"door": door, "key": key, "place": place, "facing": facing}
    pairs = [("door", "place"), ("place", "key"), ("place", "facing"), ("door", "key")]
    return [(" ".join(pair), tuple(parts[name] for name in pair)) for pair in pairs]


@pytest.mark.parametrize("size", [5, 6])
def test_doorkey_begins_as_minigrid_begins_it(size: int) -> None:
    env_id, n, n_reference = f"MiniGrid-DoorKey-{size}x{size}-v0", 12_000, 4_000
    rows = make(env_id, n, 1)
    found: Counter[tuple[str, Any]] = Counter()
    for row in range(n):
        found.update(facts(cells_of(rows, row), place_of(rows, row), int(rows.state["facing"][row])))
    expected: Counter[tuple[str, Any]] = Counter()
    single: Any = gym.make(env_id).unwrapped
    codes = {None: EMPTY, "wall": WALL, "key": KEY, "door": LOCKED, "goal": GOAL}
    single.reset(seed=0)
    for _ in range(n_reference):
        single.reset()
        cells = [codes[None if thing is None else thing.type] for thing in single.grid.grid]
        place = tuple(int(part) for part in single.agent_pos)
        expected.update(facts(np.array(cells).reshape(size, size).T, place, int(single.agent_dir)))  # type: ignore[arg-type]
    assert len(expected) >= 30
    assert set(found) >= set(expected)
    for what in found:
        ours, theirs = found[what] / n, expected[what] / n_reference
        pooled = (found[what] + expected[what]) / (n + n_reference)
        assert abs(ours - theirs) < 5 * np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / n_reference)), what


def test_every_beginning_of_the_large_ones_is_a_task() -> None:
    rows = make("MiniGrid-DoorKey-16x16-v0", 3000, 0)
    walls, doors = set(), set()
    for row in range(3000):
        cells = cells_of(rows, row)
        (wall, door), (key, _) = np.argwhere(cells == LOCKED)[0], np.argwhere(cells == KEY)[0]
        assert key < wall
        assert place_of(rows, row)[0] < wall
        assert cells[place_of(rows, row)] == EMPTY
        assert (cells[wall] == WALL).sum() == 15
        walls.add(int(wall))
        doors.add(int(door))
    assert (walls, doors) == (set(range(2, 14)), set(range(1, 14)))


def test_empty_begins_in_the_corner_or_anywhere() -> None:
    corner, anywhere = make("MiniGrid-Empty-5x5-v0", 50, 0), make("MiniGrid-Empty-Random-5x5-v0", 4000, 0)
    assert {(place_of(corner, row), int(corner.state["facing"][row])) for row in range(50)} == {((1, 1), 0)}
    counts = Counter((place_of(anywhere, row), int(anywhere.state["facing"][row])) for row in range(4000))
    assert len(counts) == 8 * 4
    assert max(abs(count - 125) for count in counts.values()) < 5 * np.sqrt(125)


def test_features_are_those_of_the_adapter() -> None:
    env = EnvParams(id=IDS[2])
    adapter, rows = adapter_for(env), make(IDS[2], 9, 0)
    np.testing.assert_array_equal(rows.features(rows.observation), adapter.features(rows.observation.numpy()))
    assert all(has_tensors(EnvParams(id=env_id), adapter) for env_id in IDS)
    other = EnvParams(id="MiniGrid-FourRooms-v0")
    assert not has_tensors(other, adapter_for(other))
