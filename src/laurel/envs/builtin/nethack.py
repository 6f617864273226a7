"""NetHack on NLE's own game (`nle.nethack`), without the Gymnasium environments of that package and their cost.

Steps, rewards and ends are those of NLE 1.3.0's tasks (Küttler et al. 2020, arXiv 2006.13760): menus and prompts are
dismissed as there, and `penalty_step` is paid where the game's clock stands still. Observations hold less: the squares
around the player, the status and the message, as a row of numbers. Gymnasium's limit cuts an episode, without quitting
the game.
`info` has `stairs`: how many squares away the nearest staircase or ladder down is that the map shows, -1 where none is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from laurel.arrays import Array, BoolArray, DoubleArray, IntArray
from laurel.envs.builtin.batch import BatchEnv
from laurel.envs.builtin.nethack_glyphs import dark, down, nle, oracle, symbols
from laurel.envs.builtin.nethack_level import OPTIONS, compiled
from laurel.errors import EnvError, no_such

Row = npt.NDArray[np.int32]
Seen = Mapping[str, Array]
Task = Literal["score", "gold", "scout", "staircase", "level", "oracle", "oracle_sober"]

SCORED: tuple[Task, ...] = ("score", "gold", "scout")
REACHED: tuple[Task, ...] = ("staircase", "level", "oracle", "oracle_sober")
"""Tasks that end, with 1 as reward, when something is reached."""
TASKS = (*SCORED, *REACHED)
STATUS, MESSAGE = 27, 256
"""Numbers of the status (`nle.nethack.NLE_BL_*` say which) and bytes of the message."""
X, Y, SCORE, HEALTH, MOST_HEALTH, DEPTH, GOLD = 0, 1, 9, 10, 11, 12, 13
EXPERIENCE, TIME, HUNGER, CONDITION = 18, 20, 21, 25
"""Places in the status."""
SHAPE = (21, 79)
"""Rows and columns of a level's map."""
_KEYS = ("glyphs", "blstats", "message", "program_state", "internal")
_SPACE, _ESCAPE = 32, 27
_IN_MOVE_LOOP = 3
"""Place in the program's state that says that the game waits for a move."""
_WAITS_FOR_ANSWER, _WAITS_FOR_TEXT, _WAITS_FOR_SPACE, _ON_STAIRS_DOWN = 1, 2, 3, 4
"""Indices into NLE's `internal` observation."""
_ANSWERED = (b"eat", b"attack", b"direction?", b"pray")
"""Prompts with one of these words are left to the player; the others are declined."""
_SEED_LIMIT = 2**62
_DRAWS = 100
"""Games that may be over before the first move until the level is refused."""


@cache
def actions() -> tuple[int, ...]:
    """Return the keys of NLE's tasks: go and run in eight directions, up, down, wait, kick, eat, search, more."""
    from nle import nethack

    directions = (*nethack.CompassDirection, *nethack.CompassDirectionLonger, *nethack.MiscDirection)
    commands = (nethack.Command.KICK, nethack.Command.EAT, nethack.Command.SEARCH)
    return tuple(int(key) for key in (nethack.MiscAction.MORE, *directions, *commands))


@cache
def action_names() -> tuple[str, ...]:
    """Return what the actions are called, such as "go north", "run north" and "eat"."""
    from nle import nethack

    went = [f"go {_words(one.name)}" for one in nethack.CompassDirection]
    ran = [f"run {_words(one.name.removesuffix('_LONGER'))}" for one in nethack.CompassDirectionLonger]
    rest = [f"go {one.name.lower()}" if one.name != "WAIT" else "wait" for one in nethack.MiscDirection]
    return ("more", *went, *ran, *rest, "kick", "eat", "search")


def _words(name: str) -> str:
    directions = {"N": "north", "S": "south", "E": "east", "W": "west"}
    return "".join(directions[letter] for letter in name)


class Game:
    """One game of NetHack.

    Args:
        task: what is paid, and when the episode ends.
        level: of the task `level`: the depth to reach.
        penalty_step: paid in steps in which the game's clock stands still; None: -0.01 in tasks that pay a score, as in
            NLE, and 0 in those that end with a reward of 1, so that the return says whether it was reached.
        character: role, race, alignment and gender, as NLE has them; "@" draws them.
        crop: squares around the player that are seen, along a side; odd.
        games: how many games episodes are drawn from, the same ones whatever the seed, so that an agent meets in
            evaluation what it was trained in; None: each episode is a new game.
        level_file: of the one level that is played, see `laurel.envs.builtin.nethack_level`, where no pet goes with the
            player, all is picked up and no monsters come; None: NetHack's own dungeon.
        seen: arrays that the game writes observations into, by NLE's names; None: new ones.

    Raises:
        EnvError: an argument is not allowed, or NLE is not installed.
    """

    def __init__(
        self,
        task: Task = "score",
        level: int = 4,
        penalty_step: float | None = None,
        character: str = "mon-hum-neu-mal",
        crop: int = 9,
        games: int | None = None,
        level_file: str | None = None,
        *,
        seen: Seen | None = None,
    ) -> None:
        if task not in TASKS:
            raise EnvError(f"NetHack: {no_such('task', task, TASKS)}.")
        if not (crop % 2 and 1 <= crop <= 21):
            raise EnvError(f"NetHack: crop is {crop}; it must be an odd number from 1 to 21.")
        if games is not None and games < 1:
            raise EnvError(f"NetHack: games is {games}; it must be at least 1, or null for a new game each episode.")
        self.task, self.level, self.crop, self._games = task, level, crop, games
        self.penalty_step = (-0.01 if task in SCORED else 0.0) if penalty_step is None else penalty_step
        self._api = nle()
        options = list(self._api.NETHACKOPTIONS)
        if task == "gold":
            options = ["pickup_types:$" if o.startswith("pickup_types") else o for o in options]
        level_data = None if level_file is None else compiled(level_file)
        if level_data is not None:
            options = [*(o for o in options if not o.startswith("pickup_types")), *OPTIONS]
        self.raw = self._api.Nethack(
            observation_keys=_KEYS,
            playername=f"Agent-{character}",
            ttyrec=None,
            options=options,
            spawn_monsters=level_data is None,
            fix_moon_phase=True,
        )
        if level_data is not None:
            link = Path(self.raw._vardir, "nhdat")  # to NLE's, in a folder that goes with the game
            link.unlink()
            link.write_bytes(level_data)
        self._keys = actions()
        seen = seen or {name: of[0] for name, of in arrays(1).items()}
        self.raw._pynethack.set_buffers(**seen)  # so that a batch of games writes into arrays of the batch
        inside = self.raw._pynethack
        self._play, self._over, self._playing = inside.step, inside.done, inside.in_normal_game
        self._glyphs, self._status, self._message = seen["glyphs"], seen["blstats"], seen["message"]
        self._program, self._internal = seen["program_state"], seen["internal"]
        self._explored: dict[tuple[int, int], int] = {}

    def begin(self, rng: np.random.Generator) -> None:
        """Begin a game whose seeds are drawn; nothing in it depends on the clock or the moon."""
        if self._games is not None:
            rng = np.random.default_rng(int(rng.integers(self._games)))
        for _ in range(_DRAWS):
            core, disp = (int(seed) for seed in rng.integers(_SEED_LIMIT, size=2))
            self.raw.set_initial_seeds(core, disp, reseed=False)
            self.raw.reset()
            if self._past_first_screens():
                break
        else:
            raise EnvError(f"NetHack: {_DRAWS} games in a row were over before the first move. Mend the level file.")
        self._explored = {}

    def _past_first_screens(self) -> bool:
        """Dismiss the first messages of a game; return whether it continues, since things at the start can kill."""
        for _ in range(1000):
            if self._program.item(_IN_MOVE_LOOP):
                return True
            if self._over():
                return False
            self._play(_SPACE)
        return True

    def step(self, action: int) -> tuple[float, bool]:
        """Take an action; return the reward, and whether the game or the task ended."""
        status = self._status
        score, gold, clock = status.item(SCORE), status.item(GOLD), status.item(TIME)
        self._play(self._keys[action])
        done = self._past_menus()
        reached = self.task in REACHED and self._reached()
        playing = self._playing()
        reward = 0.0
        if self.task in REACHED:
            reward = float(reached and not done)
        elif not playing:
            pass
        elif self.task == "score":
            reward = float(status.item(SCORE) - score)
        elif self.task == "gold":
            reward = float(status.item(GOLD) - gold)
        else:
            reward = self._discovered()
        if status.item(TIME) == clock and (playing or self.task not in ("gold", "scout")):
            reward += self.penalty_step
        return reward, done or reached

    def close(self) -> None:
        self.raw.close()

    def _past_menus(self) -> bool:
        """Dismiss menus, text prompts and all questions but those in _ANSWERED; return whether the game is over."""
        internal = self._internal
        while not self._over():
            if internal.item(_WAITS_FOR_SPACE):
                self._play(_SPACE)
                continue
            if internal.item(_WAITS_FOR_TEXT):
                self._play(_ESCAPE)
                continue
            if internal.item(_WAITS_FOR_ANSWER):
                asked = self._message.tobytes()
                if not any(word in asked for word in _ANSWERED):
                    self._play(_ESCAPE)
                    return bool(self._over())
            return False
        return True

    @property
    def on_stairs_down(self) -> bool:
        """Whether the player stands on stairs down, which are then hidden on the map."""
        return bool(self._internal.item(_ON_STAIRS_DOWN))

    def _reached(self) -> bool:
        if self.task == "staircase":
            return self.on_stairs_down
        if self.task == "level":
            return bool(self._status.item(DEPTH) >= self.level)
        if self.task == "oracle_sober" and self._status.item(CONDITION) & self._api.BL_MASK_HALLU:
            return False
        x, y = self._status.item(X), self._status.item(Y)
        return bool((self._glyphs[y - 1 : y + 2, x - 1 : x + 2] == oracle()).any())

    def _discovered(self) -> float:
        level = self._status.item(self._api.NLE_BL_DNUM), self._status.item(self._api.NLE_BL_DLEVEL)
        known = int((self._glyphs != dark()).sum())
        new = known - self._explored.get(level, 0)
        self._explored[level] = known
        return float(new)


class Games:
    """N games that are seen together; arguments and errors as in `Game`."""

    def __init__(self, number: int, **options: Any) -> None:
        self._seen = arrays(number)
        self._x, self._y = (self._seen["blstats"][:, place] for place in (X, Y))
        rows, columns = SHAPE
        # a map each, and behind it a dark square, which stands for all that are outside
        self._maps = np.full((number, rows * columns + 1), dark(), dtype=self._seen["glyphs"].dtype)
        views = [{name: of[i] for name, of in self._seen.items()} for i in range(number)]
        for view, squares in zip(views, self._maps, strict=True):
            view["glyphs"] = squares[:-1].reshape(SHAPE)
        self.games = [Game(**options, seen=view) for view in views]
        self.crop = self.games[0].crop
        self._around = _around(self.crop)
        self._begins = np.arange(number)[:, None] * self._maps.shape[1]

    @property
    def size(self) -> int:
        """Length of an observation."""
        return self.crop**2 + STATUS + MESSAGE

    def observe(self) -> npt.NDArray[np.int32]:
        """Return glyphs around the players (N, crop * crop), row by row, statuses and messages, as (N, size)."""
        status = self._seen["blstats"]
        rows = np.empty((len(self.games), self.size), dtype=np.int32)
        around = self._around.take(self._y * SHAPE[1] + self._x, axis=0)
        rows[:, : self.crop**2] = self._maps.take(around + self._begins)  # faster than indexing, which checks more
        rows[:, self.crop**2 : -MESSAGE] = status
        rows[:, -MESSAGE:] = self._seen["message"]
        return rows

    def stairs(self) -> IntArray:
        """Return how far the nearest way down is that each map shows (N,), -1 where it shows none.

        Counted in steps in eight directions as if there were no walls.
        """
        staircase, ladder = down()
        shown = ((self._maps == staircase) | (self._maps == ladder)).tobytes()  # searched faster than with NumPy
        found = [0 if game.on_stairs_down else -1 for game in self.games]
        place = shown.find(1)
        while place >= 0:
            game, square = divmod(place, self._maps.shape[1])
            y, x = divmod(square, SHAPE[1])
            away = max(abs(y - self._y.item(game)), abs(x - self._x.item(game)))
            found[game] = away if found[game] < 0 else min(away, found[game])
            place = shown.find(1, place + 1)
        return np.array(found)

    def close(self) -> None:
        """End all games."""
        for game in self.games:
            game.close()


def arrays(number: int) -> Seen:
    """Return arrays for what N games show, an axis for the games first."""
    described = nle().OBSERVATION_DESC
    return {name: np.zeros((number, *described[name]["shape"]), described[name]["dtype"]) for name in _KEYS}


@cache
def _around(crop: int) -> npt.NDArray[np.int16]:
    """Return for each square of a map (1659,) the squares around it (crop * crop); those outside are the last, dark."""
    rows, columns = SHAPE
    squares = np.pad(np.arange(rows * columns).reshape(SHAPE), crop // 2, constant_values=rows * columns)
    windows = np.lib.stride_tricks.sliding_window_view(squares, (crop, crop))
    return windows.reshape(rows * columns, crop * crop).astype(np.int16)  # small enough for a processor's cache


def _space(size: int) -> gym.Space[Row]:
    limits = np.iinfo(np.int32)
    return gym.spaces.Box(limits.min, limits.max, (size,), np.int32)


class NetHack(gym.Env[Row, np.int64]):
    """One game; arguments and errors as in `Game`.

    Args:
        status_in_words: whether captions tell depth, health, gold and hunger besides the message.
        render_mode: "ansi" or None.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 8}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, *, status_in_words: bool = False, render_mode: str | None = None, **options: Any) -> None:
        self.render_mode, self.status_in_words = render_mode, status_in_words
        self.games = Games(1, **options)
        self.observation_space = _space(self.games.size)
        self.action_space = gym.spaces.Discrete(len(actions()))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Row, dict[str, Any]]:
        super().reset(seed=seed)
        self.games.games[0].begin(self.np_random)
        return self.games.observe()[0], self._info()

    def step(self, action: np.int64) -> tuple[Row, float, bool, bool, dict[str, Any]]:
        reward, ended = self.games.games[0].step(int(action))
        return self.games.observe()[0], reward, ended, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"stairs": int(self.games.stairs()[0])}

    def render(self) -> str | None:
        """Return the message and the squares around the player as text."""
        if self.render_mode is None:
            return None
        row, side = self.games.observe()[0], self.games.crop
        squares = symbols()[row[: side**2]].reshape(side, side)
        return "\n".join([message_of(row), *("".join(line) for line in squares)])

    def close(self) -> None:
        self.games.close()


class NetHackVector(BatchEnv):
    """N games in this process; the step after an episode's end is a reset. Arguments as in `NetHack`."""

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        *,
        status_in_words: bool = False,
        **options: Any,
    ) -> None:
        self.games, self.status_in_words = Games(num_envs, **options), status_in_words
        super().__init__(num_envs, max_episode_steps, _space(self.games.size), len(actions()))

    def begin(self, which: BoolArray) -> None:
        for i in np.flatnonzero(which):
            self.games.games[i].begin(self.np_random)

    def advance(self, actions: IntArray, begins: BoolArray) -> tuple[DoubleArray, BoolArray]:
        turns = zip(self.games.games, actions.tolist(), begins.tolist(), strict=True)
        rewards, ended = zip(
            *[(0.0, False) if over else game.step(action) for game, action, over in turns], strict=True
        )
        if begins.any():
            self.begin(begins)
        return np.array(rewards), np.array(ended)

    def observe(self) -> npt.NDArray[np.int32]:
        return self.games.observe()

    def info(self) -> dict[str, Any]:
        return {"stairs": self.games.stairs()}

    def close_extras(self, **_: Any) -> None:
        self.games.close()


def message_of(row: Row) -> str:
    """Return the message of an observation, which may be empty."""
    return row[-MESSAGE:].astype(np.uint8).tobytes().partition(b"\0")[0].decode("latin-1").strip()
