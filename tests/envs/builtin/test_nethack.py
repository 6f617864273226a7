"""NetHack on NLE's own game: what NLE's environments answer, seeds that repeat, and messages as captions."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from laurel.agents.actors import make_actor
from laurel.envs import adapter_for
from laurel.envs.base import Transitions
from laurel.envs.builtin import nethack_game as game
from laurel.envs.builtin.nethack import Games, NetHackVector, message_of, said_in
from laurel.envs.builtin.nethack_game import MESSAGE, STATUS, TASKS
from laurel.envs.builtin.nethack_glyphs import DRAWN, dark, kinds_of_glyphs
from laurel.envs.vector import make_vector
from laurel.errors import EnvError
from laurel.evaluation.rollout import roll_out
from laurel.params import EnvParams, load_params

tasks = pytest.importorskip("nle.env.tasks")
ID = "laurel/NetHack-v0"
THEIRS = {
    "score": "NetHackScore", "gold": "NetHackGold", "scout": "NetHackScout", "staircase": "NetHackStaircase",
    "oracle": "NetHackOracle",
}  # fmt: skip


@pytest.mark.parametrize("task", THEIRS)
def test_a_game_is_that_of_nle(task: str) -> None:
    """Observations, rewards and ends of 400 random steps, over the ends of episodes."""
    games = Games(1, task=task, penalty_step=-0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys = ("glyphs", "blstats", "message")
        theirs: Any = getattr(tasks, THEIRS[task])(max_episode_steps=10**6, fix_moon_phase=True, observation_keys=keys)
    assert tuple(int(action) for action in theirs.actions) == game.actions()
    rng = np.random.default_rng(1)

    def begin() -> dict[str, Any]:
        core, disp = (int(seed) for seed in np.random.default_rng(7).integers(2**62, size=2))
        theirs.seed(core, disp, False)
        observed: dict[str, Any] = theirs.reset()[0]
        games.games[0].begin(np.random.default_rng(7))
        return observed

    observed = begin()
    for action in rng.integers(23, size=400).tolist():
        ended = False
        row = games.observe()[0]
        np.testing.assert_array_equal(row[81 : 81 + STATUS], observed["blstats"])
        np.testing.assert_array_equal(row[-MESSAGE:], observed["message"])
        x, y = observed["blstats"][:2]
        around = np.pad(observed["glyphs"], 4, constant_values=dark())[y : y + 9, x : x + 9]
        np.testing.assert_array_equal(row[:81].reshape(9, 9), around)
        observed, reward, ended, *_ = theirs.step(action)
        assert games.games[0].step(action) == (pytest.approx(reward), ended)
        if ended:
            observed = begin()
    theirs.close()
    games.close()


def test_a_seed_repeats_episodes_that_differ() -> None:
    def episodes() -> list[bytes]:
        env = gym.make_vec(ID, num_envs=2, vectorization_mode="vector_entry_point", max_episode_steps=20)
        rows = [env.reset(seed=5)[0]]
        ends = 0
        for action in np.random.default_rng(0).integers(1, 9, (45, 2)):
            row, _, terminated, truncated, _ = env.step(action)
            rows.append(row)
            ends += int((terminated | truncated).sum())
        env.close()
        assert ends >= 4
        return [row.tobytes() for row in rows]

    first = episodes()
    assert first == episodes()
    assert first[0] != first[21], "the second episode is another game"


def test_one_game_is_a_batch_of_one() -> None:
    single = gym.make(f"laurel.envs.builtin:{ID}", render_mode="ansi")
    batch = gym.make_vec(ID, num_envs=1, vectorization_mode="vector_entry_point")
    assert (single.reset(seed=3)[0] == batch.reset(seed=3)[0][0]).all()
    for action in np.random.default_rng(0).integers(23, size=50):
        step, many = single.step(action), batch.step(np.array([action]))
        assert (step[0] == many[0][0]).all()
        assert step[1] == many[1][0]
    assert "@" in str(single.render())
    single.close()
    batch.close()


def test_a_limit_leaves_games_together() -> None:
    params = EnvParams(id=ID, max_episode_steps=6)
    envs = make_vector(params, adapter_for(params), 2, seed=0)
    assert isinstance(envs.form, NetHackVector)
    envs.reset()
    ends = [envs.step(np.full(2, 22)).truncated.all() for _ in range(14)]  # 22 searches
    assert np.flatnonzero(ends).tolist() == [5, 12]
    envs.close()


def test_captions_are_messages_and_the_end_of_a_task() -> None:
    adapter = adapter_for(EnvParams(id=ID, kwargs={"task": "staircase"}))
    env = gym.make_vec(ID, num_envs=4, vectorization_mode="vector_entry_point", task="staircase")
    before = env.reset(seed=0)[0]
    said = set()
    for action in np.random.default_rng(0).integers(23, size=(60, 4)):
        after, reward, terminated, truncated, info = env.step(action)
        rows = Transitions(before, action, reward.astype(np.float32), after, terminated, truncated, info)
        captions = [adapter.describe(event) for event in adapter.encode(rows).tolist()]
        for caption, row in zip(captions, after, strict=True):
            assert caption == " ".join(" ".join(said_in(row)).split())
        said |= set(captions)
        before = after
    assert "" in said
    assert len(said) > 5
    assert adapter.features(before).shape[0] == 4
    end, target = np.array([True, False, True, False]), {"target": np.array([1, 2, 0, 0])}
    reached = Transitions(before, np.zeros(4), np.zeros(4, np.float32), before, end, ~end, target)
    told = [adapter.describe(event) for event in adapter.encode(reached).tolist()]
    assert [adapter.says_success(text) for text in told] == [True, False, False, False]
    assert adapter.succeeded(np.zeros(4, np.float32), reached).tolist() == [True, True, False, False]  # type: ignore[union-attr]
    env.close()


@pytest.mark.parametrize("ends", [True, False])
def test_an_episode_that_reaches_the_target_is_a_success_although_penalties_outweigh_its_reward(ends: bool) -> None:
    options = {"level_file": "river_narrow", "penalty_step": -0.5}
    env = EnvParams(id=ID, kwargs={"task": "staircase", "ends": ends, **options}, max_episode_steps=300)
    adapter, rng = adapter_for(env), np.random.default_rng(0)
    envs = make_vector(env, adapter, 4, 0)
    before, told, returns = envs.reset().copy(), np.zeros(4, int), np.zeros(4, np.float32)
    found = []
    for _ in range(1500):
        action = rng.integers(len(game.actions()), size=4)
        step = envs.step(action)
        steps = Transitions(before, action, step.reward, step.observation, step.terminated, step.truncated, step.info)
        told += step.valid & [adapter.says_success(adapter.describe(event)) for event in adapter.encode(steps).tolist()]
        returns += step.reward
        success = adapter.succeeded(returns, steps)
        assert success is not None
        found += [(told[i], success[i], returns[i]) for i in np.flatnonzero(step.valid & envs.ended)]
        told[envs.ended], returns[envs.ended] = 0, 0
        before = step.observation.copy()
    envs.close()
    assert {reached for reached, _, _ in found} == {0, 1}, "at most once an episode"
    assert all(reached == success for reached, success, _ in found)
    assert any(reached and total < 0 for reached, _, total in found)


def descended(**options: Any) -> tuple[Games, tuple[float, bool]]:
    """Play a game by random actions until the player has gone down the first staircase; return what that step paid."""
    games = Games(1, **options)
    games.games[0].begin(np.random.default_rng(161))
    rng = np.random.default_rng(161)
    for _ in range(28):
        assert games.games[0].step(int(rng.integers(1, 17))) == (0.0, False)
    assert games.games[0].on_stairs_down
    return games, games.games[0].step(game.action_names().index("go down"))


def test_descending_is_captioned_although_nles_wrapper_dismisses_the_message() -> None:
    games, _ = descended(penalty_step=0)
    row = games.observe()
    assert row[0, 81 + game.DEPTH] == 2
    assert message_of(row[0]) == "", "NLE's observation"
    adapter = adapter_for(EnvParams(id=ID))
    no = np.zeros(1, bool)
    steps = Transitions(row, np.zeros(1), np.zeros(1, np.float32), row, no, no, games.info())
    assert adapter.describe(int(adapter.encode(steps)[0])) == "You descend the stairs."
    assert "The game says: You descend the stairs." in str(adapter.describe_observation(row[0]))
    assert games.games[0].step(game.action_names().index("wait")) == (0.0, False)
    assert said_in(games.observe()[0])[:-1] == [""], "only in the step in which it was dismissed"
    games.close()


def test_descending_is_motifs_task_with_or_without_an_end() -> None:
    goes_on = {"pays": 50, "ends": False}
    for options, paid in (({}, (1.0, True)), ({"pays": 50}, (50.0, True)), (goes_on, (50.0, False))):
        games, step = descended(task="descend", **options)
        assert step == paid
        adapter = adapter_for(EnvParams(id=ID, kwargs={"task": "descend", **options}))
        row, no = games.observe(), np.array([False])
        steps = Transitions(row, np.zeros(1), np.float32([paid[0]]), row, np.array([paid[1]]), no, games.info())
        assert adapter.says_success(adapter.describe(int(adapter.encode(steps)[0])))
        if "ends" in options:
            assert [games.games[0].step(game.action_names().index("wait")) for _ in range(3)] == [(0.0, False)] * 3
            assert games.info()["target"] == [2]
        games.close()
    games, step = descended(task="descend", level=3)
    assert step == (0.0, False), "the second level is not the third"
    games.close()


def test_a_continual_task_is_rewarded_once() -> None:
    """The player waits on the staircase."""
    games = Games(1, task="staircase", ends=False)
    games.games[0].begin(np.random.default_rng(161))
    rng = np.random.default_rng(161)
    chosen = [*(int(rng.integers(1, 17)) for _ in range(28)), *[game.action_names().index("wait")] * 3]
    assert [games.games[0].step(action) for action in chosen] == [
        *[(0.0, False)] * 27,
        (1.0, False),
        *[(0.0, False)] * 3,
    ]
    assert games.games[0].on_stairs_down
    games.close()


def test_dismissed_messages_are_the_last_that_fit_and_repeats_are_counted() -> None:
    games = Games(1)
    single_game = games.games[0]
    single_game.begin(np.random.default_rng(0))
    hits = [b"The newt bites!"] * 3
    single_game._keep([b"x" * 200, b"y" * 200, b"", *hits])
    adapter = adapter_for(EnvParams(id=ID))
    row = games.observe()[0]
    assert said_in(row)[:-1] == ["y" * 200, *["The newt bites!"] * 3]
    caption = adapter._caption(row[81:])  # type: ignore[attr-defined]
    assert caption.startswith("y" * 200 + " The newt bites! (x3)")
    single_game.begin(np.random.default_rng(0))
    assert said_in(games.observe()[0])[:-1] == [""]
    games.close()


def test_a_death_is_captioned() -> None:
    """Random play until a death: the last messages are dismissed by the wrapper."""
    games = Games(1)
    rng = np.random.default_rng(0)
    ended, last = False, 0
    games.games[0].begin(np.random.default_rng(0))
    while not ended:
        last += 1
        ended = games.games[0].step(int(rng.integers(23)))[1]
    assert any("You die" in line for line in said_in(games.observe()[0])), last
    games.close()


def test_the_status_in_words() -> None:
    adapter = adapter_for(EnvParams(id=ID, kwargs={"status_in_words": True}))
    env = gym.make(f"laurel.envs.builtin:{ID}", status_in_words=True)
    row, info = env.reset(seed=0)
    text = adapter.describe_observation(row)
    assert text is not None
    assert text.startswith("Depth 1, health 14 of 14, gold 0, not hungry.")
    assert "@" in text
    still = Transitions(
        row[None],
        np.zeros(1),
        np.zeros(1, np.float32),
        row[None],
        np.zeros(1, bool),
        np.zeros(1, bool),
        {"target": np.array([info["target"]])},
    )
    assert adapter.describe(int(adapter.encode(still)[0])).endswith("Depth 1, health 14 of 14, gold 0, not hungry.")
    env.close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"task": "scor"}, f'there is no task "scor". Did you mean "score"? There are {", ".join(TASKS)}.'),
        ({"eat": "last"}, 'there is no value of eat "last". There are raw, first.'),
        ({"pays": 0}, "pays is 0; it must be above 0."),
        ({"crop": 4}, "crop is 4; it must be an odd number from 1 to 21."),
        ({"character": "vla-hum-neu-fem"}, 'character is vla-hum-neu-fem, in which "vla" names nothing; it must be a'),
        ({"character": "mon--neu-mal"}, 'in which "" names nothing'),
        ({"crop": "9"}, "crop is '9'; it must be a whole number."),
        ({"games": 1.5}, "games is 1.5; it must be a whole number."),
        ({"games": True}, "games is True; it must be a whole number."),
        ({"penalty_step": "-0.01"}, "penalty_step is '-0.01'; it must be a number."),
        ({"level_file": 5}, "level_file is 5; it must be a text."),
        ({"ends": "no"}, "ends is 'no'; it must be true or false."),
        ({"processes": "2"}, "processes is '2'; it must be a whole number."),
        ({"processes": 0}, "processes is 0; it must be at least 1."),
        (
            {"pays": 50},
            "pays has no effect on the task score, which has no target. Leave it out, or set task to stairc",
        ),
        ({"task": "gold", "ends": False}, "ends has no effect on the task gold"),
        ({"task": "level", "level": "x"}, "level is 'x'; it must be a whole number."),
        ({"task": "level", "level": 1}, "level is 1; it must be at least 2, and only the tasks level and descend"),
        ({"task": "gold", "level": 3}, "level is 3; it must be at least 2, and only the tasks level and descend"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EnvError) as caught:
        Games(1, **options)
    assert sentence in str(caught.value)
    with pytest.raises(EnvError, match=r"env\.kwargs: NetHack: "):
        adapter_for(EnvParams(id=ID, kwargs=options))


def test_eat_first_eats_the_first_listed_item() -> None:
    """As Motif has it: "go northwest", whose key is y, eats, and every other action closes the question."""

    def played(eat: str, *names: str) -> tuple[str, int]:
        """Return what the game says in the end, and how much time has passed."""
        games = Games(1, eat=eat)
        games.games[0].begin(np.random.default_rng(0))
        before = games.observe()[0]
        for name in names:
            games.games[0].step(game.action_names().index(name))
        row = games.observe()[0]
        games.close()
        return message_of(row), int((row - before)[81 + game.TIME])

    question = "What do you want to eat? [ghij or ?*]"
    for eat in ("raw", "first"):
        assert played(eat, "eat") == (question, 0)
    assert played("raw", "eat", "go northwest") == (question, 0)
    assert played("raw", "eat", "search") == (question, 0)
    assert played("first", "eat", "go northwest") == ("You're finally finished.", 5)
    assert played("first", "eat", "search") == ("Never mind.", 0)
    assert played("first", "eat", "search", "search") == ("", 1)


def test_a_fixed_number_of_games_does_not_depend_on_the_seed() -> None:
    def openings(seed: int, games: int | None) -> set[bytes]:
        env = gym.make_vec(ID, num_envs=6, vectorization_mode="vector_entry_point", games=games)
        rows = env.reset(seed=seed)[0]
        env.close()
        return {row.tobytes() for row in rows}

    assert openings(0, 1) == openings(5, 1)
    assert len(openings(0, 1)) == 1
    assert len(openings(0, 2) | openings(5, 2)) == 2
    assert len(openings(0, None)) == 6


def test_an_episode_has_come_as_far_as_its_furthest_level() -> None:
    """BALROG's file says 0.012572 for the first level of the dungeon, 0.020811 for experience level 3."""
    adapter = adapter_for(EnvParams(id=ID))
    rows = np.zeros((4, 81 + STATUS + game.DISMISSED + MESSAGE), dtype=np.int32)
    rows[:, 81 + game.DEPTH], rows[:, 81 + game.EXPERIENCE] = [1, 1, 0, 60], [1, 3, 0, 1]
    stairs = {"stairs": np.array([-1, 0, 1, 3])}
    steps = Transitions(rows, np.zeros(4), np.zeros(4, np.float32), rows, np.zeros(4, bool), np.zeros(4, bool), stairs)
    reached = adapter.further_measures(steps)
    assert reached["depth"].tolist() == [1, 1, 0, 60]
    assert reached["nearness to stairs"].tolist() == [0, 1, 0.5, 0.25]
    assert reached["progression"] == pytest.approx([0.012572, 0.020811, 0, 0.012555], abs=1e-4)
    played = roll_out(
        EnvParams(id=ID, max_episode_steps=5), adapter, make_actor("random", adapter, ""), n_envs=2, episodes=3, seed=0,
        learned=None,
    )  # fmt: skip
    assert [row["further.progression"] for row in played] == pytest.approx([0.0126] * 3, abs=1e-4)
    assert all(0 <= row["further.nearness to stairs"] <= 1 for row in played)


def test_the_nearest_stairs_are_those_of_nles_map() -> None:
    """Compared over 1,500 steps with NLE's glyphs by their explanation; standing on them is what NLE pays."""
    env = gym.make_vec(ID, num_envs=2, vectorization_mode="vector_entry_point", task="staircase", crop=1)
    env.reset(seed=1)
    games = env.unwrapped.games  # type: ignore[attr-defined]
    rng, said = np.random.default_rng(0), []
    for _ in range(750):
        _, _, ended, _, info = env.step(rng.integers(1, 17, 2))
        for single_game, away, over in zip(games.games, info["stairs"].tolist(), ended.tolist(), strict=True):
            x, y = single_game._status[:2].tolist()
            down = [
                max(abs(column - x), abs(row - y))
                for row, column in zip(
                    *np.nonzero(kinds_of_glyphs()[single_game._glyphs] == DRAWN.index(">")), strict=True
                )
            ]
            assert away == (0 if over else min(down, default=-1))
            said.append(away)
    env.close()
    assert {0, 1} < set(said)
    assert -1 in said


def test_motifs_params_name_goals_that_there_are() -> None:
    params = load_params(Path("examples/motif.yaml"))
    adapter = adapter_for(params.env)
    assert params.annotate.language_model.goal in adapter.goals
    assert params.env.kwargs["eat"] == "first"
    assert {"default", "zero_knowledge", "combat", "gold", "stairs"} == set(adapter.goals)
    assert (params.shaping.quantile, params.shaping.beta, params.shaping.intrinsic) == (0.5, 3.0, 0.1)
