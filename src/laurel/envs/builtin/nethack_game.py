"""One game of NetHack on NLE's compiled game (`nle.nethack`): tasks, rewards, and which prompts are dismissed.

Steps, rewards and ends are those of NLE 1.3.0's tasks (Küttler et al. 2020, arXiv 2006.13760): menus and prompts are
dismissed as there, and steps in which the game's clock stands still are rewarded with `penalty_step`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from mmap import mmap
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from laurel.arrays import Array
from laurel.envs.builtin.nethack_glyphs import dark, nle, oracle
from laurel.envs.builtin.nethack_level import OPTIONS, compiled
from laurel.errors import EnvError, no_such

Seen = Mapping[str, Array]
Eat = Literal["raw", "first"]
Task = Literal["score", "gold", "scout", "staircase", "descend", "level", "oracle", "oracle_sober"]

SCORED: tuple[Task, ...] = ("score", "gold", "scout")
REACHED: tuple[Task, ...] = ("staircase", "descend", "level", "oracle", "oracle_sober")
"""Tasks with one reward, for reaching something; `descend` is Motif's staircase task."""
_LEVELS = {"level": 4, "descend": 2}
"""Task -> default level to reach."""
_DESCENT = b"You descend the stairs"
TASKS = (*SCORED, *REACHED)
STATUS, DISMISSED, MESSAGE = 27, 256, 256
"""Numbers of the status (`nle.nethack.NLE_BL_*` say which), bytes of messages dismissed in a step, and of the last."""
X, Y, SCORE, HEALTH, MOST_HEALTH, DEPTH, GOLD = 0, 1, 9, 10, 11, 12, 13
EXPERIENCE, TIME, HUNGER, CONDITION = 18, 20, 21, 25
"""Places in the status."""
CROP = 9
"""Default side of the view around the player, in squares."""
SHAPE = (21, 79)
"""Rows and columns of a level's map."""
_KEYS = ("glyphs", "blstats", "message", "program_state", "internal")
SAID = "said"
"""Name of the array with all messages of a step: the dismissed ones, which NLE does not show, and the last."""
MAPS = "maps"
"""Name of an array of NLE's glyphs, row by row."""
TARGET = "target"
"""Name of an array that says of each game's target: 0 not reached yet, 1 reached in the last step, 2 before."""
_SPACE, _ESCAPE = 32, 27
_IN_MOVE_LOOP = 3
"""Index into the program's state of the flag that the game waits for a move."""
_WAITS_FOR_ANSWER, _WAITS_FOR_TEXT, _WAITS_FOR_SPACE, ON_STAIRS_DOWN = 1, 2, 3, 4
"""Indices into NLE's `internal` observation."""
_WHAT_TO_EAT = re.compile(rb"What do you want to eat\?(?: \[([a-zA-Z]))?")
_ANSWERED = (b"eat", b"attack", b"direction?", b"pray")
"""Prompts that contain one of these words are left to the agent; the others are declined."""
_WHOLE, _NUMBER = ((int,), "a whole number"), ((int, float), "a number")
_TEXT, _YES_OR_NO = ((str,), "a text"), ((bool,), "true or false")
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "level": _WHOLE, "games": _WHOLE, "crop": _WHOLE, "processes": _WHOLE, "penalty_step": _NUMBER, "pays": _NUMBER,
    "character": _TEXT, "level_file": _TEXT, "ends": _YES_OR_NO, "status_in_words": _YES_OR_NO,
}  # fmt: skip
"""Option -> its types, and what it must be, in words."""
_CHARACTERS = (
    "archeologist", "barbarian", "caveman", "cavewoman", "healer", "knight", "monk", "priest", "priestess", "rogue",
    "ranger", "samurai", "tourist", "valkyrie", "wizard", "human", "elf", "elven", "dwarf", "dwarven", "gnome",
    "gnomish", "orc", "orcish", "lawful", "neutral", "chaotic", "male", "female",
)  # fmt: skip
"""NetHack's roles, races, alignments and genders."""
_SEED_LIMIT = 2**62
_DRAWS = 100
"""Number of games in a row that may end before the first move until the level is rejected."""


@cache
def actions() -> tuple[int, ...]:
    """Return the keys of NLE's tasks: go and run in eight directions, up, down, wait, kick, eat, search, more."""
    from nle import nethack

    directions = (*nethack.CompassDirection, *nethack.CompassDirectionLonger, *nethack.MiscDirection)
    commands = (nethack.Command.KICK, nethack.Command.EAT, nethack.Command.SEARCH)
    return tuple(int(key) for key in (nethack.MiscAction.MORE, *directions, *commands))


@cache
def action_names() -> tuple[str, ...]:
    """Return the names of the actions, such as "go north", "run north" and "eat"."""
    from nle import nethack

    went = [f"go {_words(direction.name)}" for direction in nethack.CompassDirection]
    ran = [f"run {_words(direction.name.removesuffix('_LONGER'))}" for direction in nethack.CompassDirectionLonger]
    rest = [
        f"go {direction.name.lower()}" if direction.name != "WAIT" else "wait" for direction in nethack.MiscDirection
    ]
    return ("more", *went, *ran, *rest, "kick", "eat", "search")


def _words(name: str) -> str:
    directions = {"N": "north", "S": "south", "E": "east", "W": "west"}
    return "".join(directions[letter] for letter in name)


class Game:
    """One game of NetHack.

    Args:
        task: determines the reward and the end of the episode.
        level: for the task `level`, the depth to reach (None: 4); for the task `descend`, the level to reach by stairs,
            counted within its part of the dungeon (None: 2).
        penalty_step: reward of steps in which the game's clock stands still; None: -0.01 in tasks with a score, as in
            NLE, and 0 in tasks that end when something is reached, so that the return is 0 or the reward for it.
        character: role, race, alignment and gender, as NLE has them; "@" draws them.
        crop: side of the view around the player, in squares; odd.
        games: number of fixed games that episodes are drawn from, independent of the seed, so that evaluation uses the
            training games; None: each episode is a new game.
        level_file: file of a single custom level (see `laurel.envs.builtin.nethack_level`), without a pet or new
            monsters and with autopickup; None: NetHack's own dungeon.
        eat: how "What do you want to eat? [fg or ?*]" is answered. "raw": by the actions' keys, as in NLE, which seldom
            are letters of food, and the question stays open until "more". "first": "go northwest", whose key is y,
            eats the first item listed, and any other action closes the question, as in Motif.
        pays: reward for reaching the target, in tasks that have one (REACHED): 1, as in NLE, or 50, as in Motif.
        ends: whether reaching it ends the episode; False: it is rewarded once and the game continues, as in Motif's
            tasks named Continual, for agents that are rewarded for captions only.
        seen: arrays that the game writes observations into, by NLE's names; None: new ones.

    Raises:
        EnvError: an argument is not allowed, or NLE is not installed.
    """

    def __init__(
        self,
        task: Task = "score",
        level: int | None = None,
        penalty_step: float | None = None,
        character: str = "mon-hum-neu-mal",
        crop: int = CROP,
        games: int | None = None,
        level_file: str | None = None,
        eat: Eat = "raw",
        pays: float = 1.0,
        ends: bool = True,
        *,
        seen: Seen | None = None,
    ) -> None:
        if task not in TASKS:
            raise EnvError(f"NetHack: {no_such('task', task, TASKS)}.")
        optional = {"level": level, "games": games, "penalty_step": penalty_step, "level_file": level_file}
        present = {name: value for name, value in optional.items() if value is not None}
        check_types({"character": character, "crop": crop, "pays": pays, "ends": ends, **present})
        if level is not None and (task not in _LEVELS or level < 2):
            raise EnvError(
                f"NetHack: level is {level}; it must be at least 2, and only the tasks {' and '.join(_LEVELS)} have "
                "one."
            )
        if not (crop % 2 and 1 <= crop <= 21):
            raise EnvError(f"NetHack: crop is {crop}; it must be an odd number from 1 to 21.")
        if games is not None and games < 1:
            raise EnvError(f"NetHack: games is {games}; it must be at least 1, or null for a new game each episode.")
        unknown = [part for part in character.lower().split("-") if not part or not _names_a_character(part)]
        if character != "@" and unknown:
            raise EnvError(
                f'NetHack: character is {character}, in which "{unknown[0]}" names nothing; it must be a role, race, '
                'alignment and gender, such as val-hum-neu-fem, or "@" to draw them.'
            )
        if eat not in (allowed := get_args(Eat)):
            raise EnvError(f"NetHack: {no_such('value of eat', str(eat), allowed)}.")
        if not pays > 0:
            raise EnvError(f"NetHack: pays is {pays}; it must be above 0.")
        if task in SCORED and (pays != 1 or not ends):
            raise EnvError(
                f"NetHack: {'ends' if pays == 1 else 'pays'} has no effect on the task {task}, which has no target. "
                f"Leave it out, or set task to {', '.join(REACHED[:-1])} or {REACHED[-1]}."
            )
        self.task, self.crop, self._games, self._eat_first = task, crop, games, eat == "first"
        self.level, self.pays, self.ends = _LEVELS.get(task, 0) if level is None else level, pays, ends
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
            link = Path(self.raw._vardir, "nhdat")  # to NLE's files, in a folder that is deleted with the game
            link.unlink()
            link.write_bytes(level_data)
        self._keys = actions()
        seen = seen or views(arrays(1))[0]
        inside = self.raw._pynethack
        inside.set_buffers(**{name: seen[name] for name in _KEYS})  # so that a batch of games writes into its arrays
        self._play, self._over, self._playing = inside.step, inside.done, inside.in_normal_game
        self._glyphs, self._status, self._message = seen["glyphs"], seen["blstats"], seen["message"]
        self._program, self._internal = seen["program_state"], seen["internal"]
        self._earlier, self._lines = seen[SAID][:DISMISSED], list[bytes]()
        self._target = seen[TARGET]
        self._explored: dict[tuple[int, int], int] = {}

    def begin(self, rng: np.random.Generator) -> None:
        """Begin a game with random seeds; nothing in it depends on the clock or the phase of the moon."""
        draw_game(self.start, rng, self._games)

    def start(self, core: int, disp: int) -> bool:
        """Begin the game with NLE's two seeds; return whether it continues past its first screens."""
        self.raw.set_initial_seeds(core, disp, reseed=False)
        self.raw.reset()
        self._explored = {}
        self._target[0] = 0
        self._keep([])
        return self._past_first_screens()

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
        key = self._keys[action]
        self._play(self._answer(key) if self._eat_first else key)
        lines: list[bytes] = []
        done = self._past_menus(lines)
        if lines != self._lines:  # both are mostly empty
            self._keep(lines)
        reached = self.task in REACHED and not done and not self._target[0] and self._reached()
        self._target[0] = 1 if reached else 2 * (self._target[0] > 0)
        playing = self._playing()
        reward = 0.0
        if self.task in REACHED:
            reward = self.pays if reached else 0.0
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
        return reward, done or (reached and self.ends)

    def _answer(self, key: int) -> int:
        """Return the key to press for an action's key, which differs when the game asks what to eat."""
        asked = _WHAT_TO_EAT.match(self._last_message()) if self._internal.item(_WAITS_FOR_ANSWER) else None
        if asked is None:
            return key
        return asked[1][0] if asked[1] and key == ord("y") else _SPACE

    def close(self) -> None:
        self.raw.close()

    def _past_menus(self, lines: list[bytes]) -> bool:
        """Dismiss menus, text prompts and all questions but those in _ANSWERED; return whether the game is over.

        Dismissed messages are added to `lines`.
        """
        internal = self._internal
        while not self._over():
            if internal.item(_WAITS_FOR_SPACE):
                lines.append(self._last_message())
                self._play(_SPACE)
                continue
            if internal.item(_WAITS_FOR_TEXT):
                lines.append(self._last_message())
                self._play(_ESCAPE)
                continue
            if internal.item(_WAITS_FOR_ANSWER):
                asked = self._last_message()
                if not any(word in asked for word in _ANSWERED):
                    lines.append(asked)
                    self._play(_ESCAPE)
                    return bool(self._over())
            return False
        return True

    def _last_message(self) -> bytes:
        return self._message.tobytes().partition(b"\0")[0]

    def _keep(self, lines: list[bytes]) -> None:
        """Write the dismissed lines into the observation; if too long, the last ones."""
        self._lines = lines
        texts = [line for line in lines if line]
        while len(text := b"\n".join(texts)) > DISMISSED:
            texts = texts[1:]
        self._earlier[:] = np.frombuffer(text.ljust(DISMISSED, b"\0"), np.uint8)

    @property
    def on_stairs_down(self) -> bool:
        """Whether the player stands on stairs down, which are then hidden on the map."""
        return bool(self._internal.item(ON_STAIRS_DOWN))

    def _reached(self) -> bool:
        if self.task == "staircase":
            return self.on_stairs_down
        if self.task == "descend":
            descended = any(_DESCENT in line for line in (*self._lines, self._last_message()))
            return descended and self._status.item(self._api.NLE_BL_DLEVEL) == self.level
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


def _names_a_character(part: str) -> bool:
    """Whether NetHack knows the beginning of a name; it would draw what it does not know."""
    return any(name.startswith(part) for name in _CHARACTERS)


def check_types(options: Mapping[str, object]) -> None:
    """Check the types of options, which params.yaml may have given any.

    Raises:
        EnvError: one is of another type than its option.
    """
    for name, value in options.items():
        kinds, type_name = _TYPES[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds != (bool,)):
            raise EnvError(f"NetHack: {name} is {value!r}; it must be {type_name}.")


def draw_game(start: Callable[[int, int], bool], rng: np.random.Generator, games: int | None) -> None:
    """Draw seeds until a game starts and continues; `games` as in `Game`.

    Raises:
        EnvError: too many games in a row were over at once.
    """
    if games is not None:
        rng = np.random.default_rng(int(rng.integers(games)))
    for _ in range(_DRAWS):
        core, disp = (int(seed) for seed in rng.integers(_SEED_LIMIT, size=2))
        if start(core, disp):
            return
    raise EnvError(f"NetHack: {_DRAWS} games in a row were over before the first move. Fix the level file.")


def memory_of(number: int) -> int:
    """Return the size in bytes of the observation arrays of N games."""
    return _layout(number).itemsize


def arrays(number: int, memory: mmap | None = None) -> Seen:
    """Return observation arrays of N games, whose first axis is the game: NLE's, SAID, MAPS and TARGET.

    A row of MAPS is a map followed by one dark square, used for all squares outside the map.
    """
    layout = _layout(number)
    record = np.zeros((), layout) if memory is None else np.ndarray((), layout, memory)
    seen = {name: record[name] for name in layout.names or ()}
    seen[MAPS][:] = dark()
    return {**seen, "message": seen[SAID][:, DISMISSED:], "glyphs": seen[MAPS][:, :-1].reshape(-1, *SHAPE)}


def views(seen: Seen) -> list[Seen]:
    """Return the arrays that each of N games writes into."""
    return [{name: values[i] for name, values in seen.items()} for i in range(len(seen[SAID]))]


def _layout(number: int) -> np.dtype[np.void]:
    described = {name: nle().OBSERVATION_DESC[name] for name in _KEYS}
    fields = [(name, desc["dtype"], (number, *desc["shape"])) for name, desc in described.items()]
    extra = [
        (SAID, np.uint8, (number, DISMISSED + MESSAGE)),
        (MAPS, np.int16, (number, SHAPE[0] * SHAPE[1] + 1)),
        (TARGET, np.int64, (number, 1)),
    ]
    return np.dtype([*(field for field in fields if field[0] not in ("message", "glyphs")), *extra], align=True)
