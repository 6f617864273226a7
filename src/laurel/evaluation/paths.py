"""The ways that agents take through a grid world from the same starts, before their training and after it."""

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
from laurel.evaluation.style import GRID, INK, MUTED, NEGATIVE, POSITIVE, drawing
from laurel.params import EnvParams
from laurel.seeding import generator

STARTS = 4
MOST_STEPS = 40
"""Actions after which a path is cut."""
_COLORS = (POSITIVE, NEGATIVE, "#332288", "#C0609A")
_FILLS = {WALL: INK, GOAL: "#3fcfa3", TRAP: "#f0894a"}
_ACROSS = 2
"""Arms beside each other."""

Square = tuple[int, int]
"""Row and column."""


@dataclass(frozen=True)
class Walk:
    """What an agent did from one start."""

    squares: Sequence[Square]
    """One after another, a move that led nowhere left out."""
    terminated: bool


@dataclass(frozen=True)
class ArmPaths:
    """Paths of an arm's agent from STARTS starts, before and after its training."""

    arm: str
    rows: Sequence[str]
    """The map."""
    before: Sequence[Walk]
    after: Sequence[Walk]


def map_of(env: EnvParams) -> tuple[str, ...] | None:
    """Return the rows of a grid world's map; None of another environment."""
    world = make_reference(env).unwrapped
    return world.squares if isinstance(world, GridWorld) else None


def paths_of(env: EnvParams, adapter: EnvAdapter, actor: Actor, seed: int) -> list[Walk]:
    """Walk from starts that lie evenly among all, each until its episode ends or MOST_STEPS actions are taken.

    Args:
        env: a grid world.
        adapter: of it.
        actor: acts; a greedy one shows its likeliest way.
        seed: of slips, the same ones for every actor, and of the actor's own draws.
    """
    references = [make_reference(env) for _ in range(STARTS)]
    limit = references[0].spec.max_episode_steps if references[0].spec else None
    worlds: list[Any] = [reference.unwrapped for reference in references]  # of GridWorld
    starts = np.flatnonzero(worlds[0].initial_state_distrib)
    chosen = starts[np.linspace(0, len(starts) - 1, min(STARTS, len(starts))).astype(int)]
    states = np.array([int(w.reset(seed=seed, options={"state": s})[0]) for w, s in zip(worlds, chosen, strict=False)])
    squares = [[_square(worlds[0], state)] for state in states.tolist()]
    over = np.zeros(len(states), dtype=np.bool_)
    rng = generator(seed, "paths")
    actor.begin(np.ones(len(states), dtype=np.bool_))
    for _ in range(min(limit or MOST_STEPS, MOST_STEPS)):
        packed = np.stack([adapter.pack_one(np.int64(state)) for state in states.tolist()])
        actions = actor.act(View(adapter, packed), rng).action
        for i in np.flatnonzero(~over).tolist():
            for move in worlds[i].lists.moves(int(actions[i])):  # the number of a list of one move is that move's own
                state, _, terminated, *_ = worlds[i].step(np.int64(move))
                states[i], over[i] = int(state), terminated
                squares[i].append(_square(worlds[i], int(state)))
                if terminated:
                    break
        if over.all():
            break
    return [Walk(_without_repeats(one), bool(ended)) for one, ended in zip(squares, over, strict=True)]


def _square(world: GridWorld, state: int) -> Square:
    return divmod(state // world.headings, len(world.squares[0]))


def _without_repeats(squares: Sequence[Square]) -> list[Square]:
    return [one for place, one in enumerate(squares) if not place or one != squares[place - 1]]


def path_figure(arms: Sequence[ArmPaths]) -> Figure:
    """Draw the map twice for each arm, with the paths before training and after; a ring is a start, a cross an end
    without the goal.
    """
    height, width = len(arms[0].rows), len(arms[0].rows[0])
    across = min(_ACROSS, len(arms))
    down = -(-len(arms) // across)
    size = 1.9 * min(1.0, 1.6 * height / width)
    with drawing(4.1 * across, (size + 0.45) * down) as figure:
        panels = figure.subplots(down, 2 * across, squeeze=False).reshape(-1)
        for place, one in enumerate(arms):
            for axes, paths, when in zip(
                panels[2 * place :], (one.before, one.after), ("before", "after"), strict=False
            ):
                _draw(axes, one.rows, paths)
                axes.set_title(f"{one.arm.replace('_', ' ')}, {when}", size=8.5)
                axes.set_xlabel(f"goal from {sum(_arrived(one.rows, path) for path in paths)} of {len(paths)}", size=8)
        for axes in panels[2 * len(arms) :]:
            axes.set_visible(False)
        return figure


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
        if not _arrived(rows, path):
            axes.plot(x[-1], y[-1], "x", ms=5, color=color, mew=1.5, zorder=6)
    axes.set(xlim=(-0.55, len(rows[0]) - 0.45), ylim=(len(rows) - 0.45, -0.55), aspect="equal", xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.xaxis.label.set_color(MUTED)


def _arrived(rows: Sequence[str], path: Walk) -> bool:
    row, column = path.squares[-1]
    return path.terminated and rows[row][column] == GOAL
