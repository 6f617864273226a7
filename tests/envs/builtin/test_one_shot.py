"""The ultimatum and matrix games: which outcomes are right, by hand, and the adapter's words for all of them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from last_steps import last_steps
from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.builtin.matrix_game import CONCEPTS, GAMES, is_right
from laurel.envs.builtin.ultimatum import ACCEPT, OBJECTIVES, POTS, REFUSE, wants
from laurel.errors import EnvError
from laurel.params import EnvParams

MATRIX, ULTIMATUM = "laurel/MatrixGame-v0", "laurel/Ultimatum-v0"


@pytest.mark.parametrize(
    ("game", "concept", "right"),
    [
        ("prisoner", "total_welfare", [0]),
        ("prisoner", "equality", [0, 3]),
        ("prisoner", "rawls", [0]),
        ("prisoner", "pareto", [0, 1, 2]),
        ("chicken", "total_welfare", [0]),
        ("chicken", "pareto", [0, 1, 2]),
        ("stag_hunt", "total_welfare", [0]),
        ("stag_hunt", "equality", [0, 3]),
        ("stag_hunt", "pareto", [0]),
        ("battle", "total_welfare", [0, 3]),
        ("battle", "equality", [1, 2]),
        ("battle", "rawls", [0, 3]),
        ("battle", "pareto", [0, 3]),
    ],
)
def test_the_right_outcomes_of_a_game(game: str, concept: str, right: list[int]) -> None:
    assert [outcome for outcome in range(4) if is_right(concept, GAMES[game].payoffs, outcome)] == right


@pytest.mark.parametrize(
    ("objective", "share", "pot", "accepted"),
    [
        ("low_percentage", 30, 100, True),
        ("low_percentage", 20, 100, False),
        ("high_percentage", 500, 1000, False),
        ("high_percentage", 6, 10, True),
        ("low_payoff", 10, 1000, True),
        ("low_payoff", 9, 10, False),
        ("high_payoff", 90, 100, False),
        ("high_payoff", 100, 1000, True),
        ("inequity_aversion", 15, 30, True),
        ("inequity_aversion", 18, 30, False),
    ],
)
def test_what_a_user_wants_accepted(objective: str, share: float, pot: float, accepted: bool) -> None:
    assert wants(objective, share, pot) == accepted


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [(ULTIMATUM, {"objective": name}) for name in OBJECTIVES]
    + [(MATRIX, {"game": game, "concept": concept}) for game in GAMES for concept in CONCEPTS],
)
def test_the_environment_rewards_what_the_adapter_calls_right(env_id: str, kwargs: dict[str, Any]) -> None:
    adapter = adapter_for(EnvParams(id=env_id, kwargs=kwargs))
    env = gym.make(env_id, **kwargs)
    assert adapter.goal == {**OBJECTIVES, **CONCEPTS}[kwargs.get("objective") or kwargs["concept"]]
    texts = [adapter.describe(event) for event in adapter.events()]
    assert len({*texts}) == len(texts)
    rng = np.random.default_rng(0)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        action = np.array([rng.integers(env.action_space.n)])  # type: ignore[attr-defined]
        after, reward, terminated, *_ = env.step(action[0])
        assert terminated
        rows = adapter.pack_one(observation)[None], action, np.float32([reward]), adapter.pack_one(after)[None]
        (event,) = adapter.encode(Transitions(*rows, np.array([True]), np.array([False])))
        assert adapter.says_success(adapter.describe(event)) == bool(reward)
    assert adapter.succeeded(np.float32([0, 1]), last_steps(True, True)).tolist() == [False, True]  # type: ignore[union-attr]


def test_outcomes_in_words() -> None:
    ultimatum = adapter_for(EnvParams(id=ULTIMATUM))
    event = (POTS.index(30) * 11 + 1) * 2
    said = "The pot is $30, and your share would be $3 (10%). You "
    assert ultimatum.describe(event + ACCEPT) == f"{said}accept: you get $3, the proposer gets $27."
    assert ultimatum.describe(event + REFUSE) == f"{said}refuse: both of you get nothing."
    game = adapter_for(EnvParams(id=MATRIX))
    assert "Player 1 cooperates and gets 0; player 2 defects and gets 4." in game.description


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(EnvError, match=r'no objective "low_percent". Did you mean "low_percentage"\?'):
        adapter_for(EnvParams(id=ULTIMATUM, kwargs={"objective": "low_percent"}))
    with pytest.raises(EnvError, match=r'no game "prisoners". Did you mean "prisoner"\?'):
        adapter_for(EnvParams(id=MATRIX, kwargs={"game": "prisoners"}))
