"""Paths of agents through a grid world from the same starts, before and after training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from laurel.agents.actor import Actor, View
from laurel.envs import make_reference
from laurel.envs.base import EnvAdapter
from laurel.envs.builtin.grid_world import GOAL, TRAP, WALL, GridWorld
from laurel.evaluation.formats import number
from laurel.evaluation.style import GRID, INK, MUTED, NEGATIVE, POSITIVE, drawing
from laurel.params import EnvParams
from laurel.seeding import generator

STARTS = 256
"""Maximum number of starts, spread evenly over all."""
DRAWN = 4
"""Walks of an agent that are drawn."""
MOST_STEPS = 40
"""Maximum number of actions of a path."""
_COLORS = (POSITIVE, NEGATIVE, "#332288", "#C0609A")
_FILLS = {WALL: INK, GOAL: "#3fcfa3", TRAP: "#f0894a"}
_ACROSS = 2
"""Arms per row of panels."""

Square = tuple[int, int]
"""Row and column."""


@dataclass(frozen=True)
class Walk:
    """An agent's path from one start."""

    squares: Sequence[Square]
    """The squares in the order of the walk, without moves that led nowhere."""
    moves: int
    arrived: bool
    """Whether the goal was reached."""
    shortest: int
    """Moves of the shortest way to the goal when no move slips; -1 if the goal cannot be reached."""


@dataclass(frozen=True)
class ArmPaths:
    """Walks of an arm's agent from the same starts, before and after its training."""

    arm: str
    rows: Sequence[str]
    """The map."""
    before: Sequence[Walk]
    after: Sequence[Walk]

    def measured(self) -> dict[str, Any]:
        """Return the share of starts that lead to the goal, and the mean number of extra moves, also before training.

        Extra moves are those beyond the shortest path, over the walks that arrive; None if none arrives.
        """
        return {
            "starts": len(self.after),
            "success": _success(self.after),
            "over_shortest": _over_shortest(self.after),
            "success_before": _success(self.before),
            "over_shortest_before": _over_shortest(self.before),
        }


def map_of(env: EnvParams) -> tuple[str, ...] | None:
    """Return the rows of a grid world's map; None for another environment."""
    world = make_reference(env).unwrapped
    return world.squares if isinstance(world, GridWorld) else None


def paths_of(env: EnvParams, adapter: EnvAdapter, actor: Actor, seed: int) -> list[Walk]:
    """Walk from every start, STARTS of them at most, until an episode ends or MOST_STEPS actions are taken.

    Args:
        actor: chooses the moves; a greedy one shows its likeliest path.
        seed: of slips, the same ones for every actor, and of the actor's own draws.
    """
    reference = make_reference(env)
    limit = reference.spec.max_episode_steps if reference.spec else None
    first: Any = reference.unwrapped
    starts = np.flatnonzero(first.initial_state_distrib)
    states = starts[np.linspace(0, len(starts) - 1, min(STARTS, len(starts))).astype(int)]
    shortest = first.moves_to_goal()[states].tolist()
    worlds: list[Any] = [make_reference(env).unwrapped for _ in states]
    for place, (world, state) in enumerate(zip(worlds, states.tolist(), strict=True)):
        world.reset(seed=seed + place, options={"state": state})
    squares = [[_square(first, state)] for state in states.tolist()]
    done, taken = np.zeros(len(states), dtype=np.bool_), np.zeros(len(states), dtype=np.int64)
    rng = generator(seed, "paths")
    actor.begin(np.ones(len(states), dtype=np.bool_))
    for _ in range(min(limit or MOST_STEPS, MOST_STEPS)):
        packed = np.stack([adapter.pack_one(np.int64(state)) for state in states.tolist()])
        actions = actor.act(View(adapter, packed), rng).action
        for i in np.flatnonzero(~done).tolist():
            for move in first.lists.moves(int(actions[i])):  # the number of a list of one move is that move's own
                state, _, terminated, *_ = worlds[i].step(np.int64(move))
                states[i], done[i], taken[i] = int(state), terminated, taken[i] + 1
                squares[i].append(_square(first, int(state)))
                if terminated:
                    break
        if done.all():
            break
    arrived = [bool(ended) and _letter(first, walked[-1]) == GOAL for walked, ended in zip(squares, done, strict=True)]
    columns = zip(map(_without_repeats, squares), taken.tolist(), arrived, shortest, strict=True)
    return [Walk(*column) for column in columns]


def _square(world: GridWorld, state: int) -> Square:
    return divmod(state // world.headings, len(world.squares[0]))


def _letter(world: GridWorld, square: Square) -> str:
    return world.squares[square[0]][square[1]]


def _without_repeats(squares: Sequence[Square]) -> list[Square]:
    return [square for place, square in enumerate(squares) if not place or square != squares[place - 1]]


def path_figure(arms: Sequence[ArmPaths]) -> Figure:
    """Draw the map twice for each arm, with some of the walks before training and after.

    A ring is a start, a cross an end without the goal.
    """
    height, width = len(arms[0].rows), len(arms[0].rows[0])
    n_columns = min(_ACROSS, len(arms))
    n_rows = -(-len(arms) // n_columns)
    size = 1.9 * min(1.0, 1.6 * height / width)
    with drawing(4.1 * n_columns, (size + 0.6) * n_rows) as figure:
        panels = figure.subplots(n_rows, 2 * n_columns, squeeze=False).reshape(-1)
        for place, paths in enumerate(arms):
            for axes, stage in zip(panels[2 * place :], ("before", "after"), strict=False):
                walks = paths.before if stage == "before" else paths.after
                chosen = np.linspace(0, len(walks) - 1, min(DRAWN, len(walks))).astype(int).tolist()
                _draw(axes, paths.rows, [walks[number] for number in chosen])
                axes.set_title(f"{paths.arm.replace('_', ' ')}, {stage}", size=8.5)
                axes.set_xlabel(_counted(walks), size=8)
        for axes in panels[2 * len(arms) :]:
            axes.set_visible(False)
        return figure


def _counted(walks: Sequence[Walk]) -> str:
    """Say from how many starts the goal was reached, and with how many moves more than on the shortest paths."""
    arrived, surplus = sum(walk.arrived for walk in walks), _over_shortest(walks)
    longer = "" if surplus is None else f"\n{number(surplus)} moves over the shortest"
    return f"goal from {arrived} of {len(walks)} starts{longer}"


def _success(walks: Sequence[Walk]) -> float:
    return sum(walk.arrived for walk in walks) / len(walks)


def _over_shortest(walks: Sequence[Walk]) -> float | None:
    surplus = [walk.moves - walk.shortest for walk in walks if walk.arrived]
    return sum(surplus) / len(surplus) if surplus else None


def _draw(axes: Axes, rows: Sequence[str], paths: Sequence[Walk]) -> None:
    for row, squares in enumerate(rows):
        for column, letter in enumerate(squares):
            fill = _FILLS.get(letter, "white")
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=fill, edgecolor=GRID, lw=1.0))
    for place, path in enumerate(paths):
        aside = 0.11 * (place - (len(paths) - 1) / 2)  # so that ways over the same squares are all seen
        y, x = np.array(path.squares, dtype=np.float64).T + aside
        color = _COLORS[place]
        axes.plot(x, y, color=color, lw=1.6, zorder=4)
        axes.plot(x[0], y[0], "o", ms=5, mfc="white", mec=color, mew=1.5, zorder=5)
        if len(x) > 1:
            arrow = {"arrowstyle": "-|>", "color": color, "lw": 1.6}
            axes.annotate("", (x[-1], y[-1]), (x[-2], y[-2]), arrowprops=arrow, zorder=5)
        if not path.arrived:
            axes.plot(x[-1], y[-1], "x", ms=5, color=color, mew=1.5, zorder=6)
    axes.set(xlim=(-0.55, len(rows[0]) - 0.45), ylim=(len(rows) - 0.45, -0.55), aspect="equal", xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.xaxis.label.set_color(MUTED)
