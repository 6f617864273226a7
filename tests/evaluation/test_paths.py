"""Paths of agents through a grid world, as the report draws them."""

from __future__ import annotations

import re

from laurel.agents.actor import Rule
from laurel.envs import adapter_for
from laurel.evaluation import plots
from laurel.evaluation.paths import ArmPaths, map_of, path_figure, paths_of
from laurel.evaluation.report import inline
from laurel.params import EnvParams

LISTS = EnvParams(
    id="laurel/GridWorld-v0",
    kwargs={"size": 3, "goal": [2, 2], "actions": "sequence", "max_moves": 2, "slip": 0.0, "max_episode_steps": 3},
)
RIGHT, DOWN_RIGHT = 2, 4 + 4 * 1 + 2


def test_a_path_has_the_squares_between_the_moves_of_a_list() -> None:
    adapter = adapter_for(LISTS)
    assert adapter.action_name(DOWN_RIGHT) == "down, right"
    rows = map_of(LISTS)
    assert rows == ("SSS", "SSS", "SSG")
    assert map_of(EnvParams(id="FrozenLake-v1")) is None
    before = paths_of(LISTS, adapter, Rule(lambda _: RIGHT), seed=0)
    after = paths_of(LISTS, adapter, Rule(lambda _: DOWN_RIGHT), seed=0)
    assert [walk.squares[0] for walk in before] == [(row, column) for row in range(3) for column in range(3)][:8]
    assert [walk.arrived for walk in before] == [False] * 6 + [True] * 2
    assert [(walk.moves, walk.shortest) for walk in before] == [
        (3, 4),
        (3, 3),
        (3, 2),
        (3, 3),
        (3, 2),
        (3, 1),
        (2, 2),
        (1, 1),
    ]
    assert before[0].squares == [(0, 0), (0, 1), (0, 2)], "a move into the edge leads nowhere"
    assert after[0].squares == [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)]
    assert all(walk.arrived for walk in after)
    figure = path_figure([ArmPaths("lm_simpo", rows, before, after)] * 3)
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    assert titles == ["lm simpo, before", "lm simpo, after"] * 3
    assert [axes.get_xlabel() for axes in figure.axes[:2]] == [
        "goal from 2 of 8 starts\n0.00 moves over the shortest",
        "goal from 8 of 8 starts\n0.62 moves over the shortest",
    ]
    assert re.search(r'role="img" aria-label="Paths through', inline("paths", plots.svg(figure), {}))
