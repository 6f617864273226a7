"""Custom levels: their observations, what they exclude of NetHack, and errors for invalid files."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from laurel.envs import adapter_for
from laurel.envs.builtin import nethack_game
from laurel.envs.builtin.nethack import Games, message_of
from laurel.envs.builtin.nethack_glyphs import symbols
from laurel.errors import EnvError
from laurel.params import EnvParams

pytest.importorskip("nle")
CELL = "MAZE: \"mylevel\", ' '\nFLAGS: hardfloor\nGEOMETRY: center,center\nMAP\n|-----|\n|.....|\n|-----|\nENDMAP\n"
CELL += 'BRANCH: (1,1,1,1),(0,0,0,0)\nSTAIR: (%d,1),down\n'  # fmt: skip
KEY = 'OBJECT:(\'(\',"skeleton key"),(1,1),blessed,0,name:"The Master Key of Thievery"\n'
EAST, WEST = 2, 4


def test_a_level_is_played_until_its_staircase(tmp_path: Path) -> None:
    """Three steps to the east of where the player stands, whatever the seed."""
    file = tmp_path / "cell.des"
    file.write_text(CELL % 4)
    games = Games(2, task="staircase", level_file=str(file))
    for seed in range(2):
        game = games.games[seed]
        game.begin(np.random.default_rng(seed))
        assert [game.step(EAST) for _ in range(3)] == [(0.0, False), (0.0, False), (1.0, True)]
    games.close()


def test_a_game_that_is_over_before_the_first_move_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A monk who begins on the key picks it up, and mostly dies of it."""
    file = tmp_path / "cell.des"
    file.write_text(CELL % 4 + KEY)
    game = Games(1, task="staircase", level_file=str(file)).games[0]
    for seed in range(4):
        game.begin(np.random.default_rng(seed))
        assert game.step(WEST) == (0.0, False)
    monkeypatch.setattr(nethack_game, "_DRAWS", 1)
    with pytest.raises(EnvError, match="1 games in a row were over before the first move"):
        game.begin(np.random.default_rng(0))
    game.close()


@pytest.mark.parametrize("level", ["river", "river_narrow"])
def test_the_rivers_of_minihack_have_boulders_and_no_pet(level: str) -> None:
    adapter = adapter_for(EnvParams(id="laurel/NetHack-v0", kwargs={"task": "staircase", "level_file": level}))
    assert "staircase" in adapter.goal
    env = gym.make_vec(
        "laurel/NetHack-v0", num_envs=4, vectorization_mode="vector_entry_point", level_file=level, crop=21
    )
    rows = env.reset(seed=0)[0]
    drawn = {str(symbol) for symbol in symbols()[rows[:, : 21**2]].reshape(-1)}
    assert drawn >= {"`", "}", "@"}
    assert "f" not in drawn
    said = set()
    for action in np.random.default_rng(0).integers(23, size=(300, 4)):
        said |= {message_of(row) for row in env.step(action)[0]}
    assert "With great effort you move the boulder." in said
    env.close()


def test_rats_come_to_a_knight_who_waits_for_battle() -> None:
    games = Games(1, task="staircase", level_file="corridor_battle", character="kni-hum-law-fem")
    game, said, ended = games.games[0], set(), False
    game.begin(np.random.default_rng(0))
    while not ended:
        ended = game.step(nethack_game.actions().index(ord("s")))[1]
        said.add(message_of(games.observe()[0]))
    assert any("giant rat bites" in message for message in said)
    games.close()


def test_a_file_that_is_not_a_level_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "level.des"
    file.write_text("LEVEL: nothing")
    with pytest.raises(EnvError, match=r"level\.des: NetHack's lev_comp refuses it \(level\.des: line 1"):
        Games(1, level_file=str(file))
    file.write_text(CELL.replace("mylevel", "other") % 4)
    with pytest.raises(EnvError, match='has no level of the name "mylevel"'):
        Games(1, level_file=str(file))
    with pytest.raises(EnvError, match=r'level_file is rivr, which is not a file\. Did you mean "river"\?'):
        Games(1, level_file="rivr")
