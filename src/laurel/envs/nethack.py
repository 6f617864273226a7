"""NetHack: the game's messages are the captions, as in Motif (Klissarov et al. 2023, arXiv 2310.00166).

A step can have several messages, all but the last dismissed by NLE's wrapper: they are joined, repeats as `(xN)`. Of
the dismissed messages, Motif keeps only "You descend the stairs." A step without a message has no caption. Messages are
not known beforehand, so no captions are listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import PROGRESSION, EnvAdapter, Transitions
from laurel.envs.builtin import nethack_game as game
from laurel.envs.builtin import nethack_glyphs as glyphs
from laurel.envs.builtin.nethack import NetHack, said_in
from laurel.envs.builtin.nethack_game import MESSAGE, REACHED, STATUS
from laurel.envs.captioner import collapse

WORDS = 64
"""Buckets into which the pairs of letters of a message are hashed and counted, for networks."""
_BY_DEPTH = (
    0.0, 0.0126, 0.0154, 0.0175, 0.0212, 0.0265, 0.0354, 0.0485, 0.0696, 0.0977, 0.1256, 0.1613, 0.2061, 0.2566, 0.2925,
    0.3088, 0.3249, 0.3401, 0.3526, 0.3655, 0.3790, 0.3929, 0.4083, 0.4258, 0.4452, 0.4664, 0.5068, 0.5544, 0.6016,
    0.6465, 0.6913, 0.7101, 0.7176, 0.7232, 0.7284, 0.7328, 0.7369, 0.7421, 0.7471, 0.7537, 0.7610, 0.7674, 0.7725,
    0.7772, 0.7813, 0.7859, 0.7890, 0.7930, 0.7967, 0.8018, 0.8068,
)  # fmt: skip
_BY_EXPERIENCE = (
    0.0, 0.0126, 0.0185, 0.0208, 0.0242, 0.0291, 0.0369, 0.0508, 0.0745, 0.1170, 0.1791, 0.2548, 0.3326, 0.4144, 0.4940,
    0.5779, 0.6261, 0.6563, 0.6810, 0.7015, 0.7174, 0.7287, 0.7371, 0.7443, 0.7513, 0.7586, 0.7642, 0.7703, 0.7760,
    0.7783, 0.7805,
)  # fmt: skip
"""Dungeon or experience level -> share of human games won among those that reached it, to four digits, from
BALROG's file achievements.json; level 0, which the status shows after the end of a game, has share 0."""


def progression(depth: IntArray, experience: IntArray) -> FloatArray:
    """Return BALROG's progression (Paglieri et al. 2024, arXiv 2411.13543) at both levels (N,): the larger share.

    A game begins with 0.0126; levels that the benchmark does not list count as 0.

    Args:
        depth: dungeon levels below the surface (N,).
        experience: the player's experience levels (N,).
    """
    shares = []
    for levels, known in ((depth, _BY_DEPTH), (experience, _BY_EXPERIENCE)):
        inside = (levels >= 0) & (levels < len(known))
        shares.append(np.where(inside, np.array(known)[np.where(inside, levels, 0)], 0.0))
    return np.maximum(*shares).astype(np.float32)


_REACHED = {
    "staircase": "You are on a staircase down: the task is done.",
    "descend": "You descend the stairs: the task is done.",
    "level": "You are deep enough in the dungeon: the task is done.",
    "oracle": "You stand beside the Oracle: the task is done.",
    "oracle_sober": "You stand beside the Oracle with a clear mind: the task is done.",
}
_GOALS = {
    "score": "Score points: fight, find gold, learn, and go deeper into the dungeon.",
    "gold": "Find gold and pick it up.",
    "scout": "Explore the dungeon and see as much of it as possible.",
    "staircase": "Find a staircase down and stand on it.",
    "descend": "Find a staircase down and go down it.",
    "level": "Go down into the dungeon, level after level.",
    "oracle": "Find the Oracle and stand beside it.",
    "oracle_sober": "Find the Oracle and stand beside it with a clear mind.",
}
_STEERING: Mapping[str, str] = {
    "default": "Get as far in the game as possible: grow strong, survive, explore, and go deeper into the dungeon.",
    "zero_knowledge": "Do well in the game. Nothing else is known of what matters in it.",
    "combat": "Find and kill monsters. You do not care about gold or going deeper.",
    "gold": "Collect gold. You do not care about monsters or going deeper.",
    "stairs": "Find stairs and go down. You do not care about gold or monsters.",
}
_HUNGER = ("satiated", "not hungry", "hungry", "weak from hunger", "fainting", "fainted", "starved")
_SPACES = re.compile(r"\s+")


class NetHackAdapter(EnvAdapter):
    """Messages are numbered by first occurrence."""

    ids = ("laurel/NetHack-v*",)
    packages = ("nle",)
    description = (
        "NetHack, a game of exploring a dungeon. The agent walks and runs in eight directions, goes up and down "
        "stairs, waits, kicks, eats and searches. It meets monsters, finds gold, food and things to use, and gets "
        "hungry."
    )
    goal = _GOALS["score"]
    anti_goal = "You are hurt, get hungry, do something in vain, or die."
    goals = _STEERING
    success_words = ("the task is done",)
    info_fields: ClassVar[Mapping[str, str]] = MappingProxyType({"stairs": "int64", "target": "int64"})
    agents_in_lockstep = 1  # each game is a copy of the whole program: more per process compete for CPU cache
    version = 3
    _task = "score"
    _status_in_words = False
    _crop = 9

    def inspect(self, env: Any) -> None:
        nethack = env.unwrapped
        assert isinstance(nethack, NetHack)
        first_game = nethack.games.games[0]
        self._task, self._status_in_words = first_game.task, nethack.status_in_words
        self._crop = nethack.games.crop
        self.goal = _GOALS[self._task]
        self.action_names = game.action_names()

    def features(self, observation: Array) -> FloatArray:
        """Turn observations into one-hot squares and position, the scaled status, and the hashed message.

        Each square has a bit for each kind of glyph, the player's place one for its column and one for its row. The
        message's pairs of letters are hashed into WORDS buckets and counted.
        """
        squares = self._crop**2
        kinds = glyphs.kinds_of_glyphs()[observation[:, :squares]]
        seen = np.eye(len(glyphs.DRAWN), dtype=np.float32)[kinds].reshape(len(observation), -1)
        rows_of, columns_of = (np.arange(n) for n in game.SHAPE)
        status = observation[:, squares : squares + STATUS].astype(np.float32)
        position = np.concatenate([status[:, [game.X]] == columns_of, status[:, [game.Y]] == rows_of], axis=1)
        status = (np.sign(status) * np.log1p(np.abs(status)) / 4).astype(np.float32)
        message = observation[:, -MESSAGE:].astype(np.int64)
        pairs = (message[:, :-1] * 31 + message[:, 1:]) % WORDS
        words = np.zeros((len(observation), WORDS), dtype=np.float32)
        rows, places = np.nonzero(message[:, 1:])
        np.add.at(words, (rows, pairs[rows, places]), 0.1)
        return np.concatenate([seen, position.astype(np.float32), status, words], axis=1)

    def encode(self, transitions: Transitions) -> IntArray:
        events = np.empty(len(transitions), dtype=np.int64)
        reached = transitions.info["target"] == 1
        rows = np.ascontiguousarray(transitions.next_observation[:, self._crop**2 :])
        compared = rows if self._status_in_words else rows[:, STATUS:]
        for i, row in enumerate(np.ascontiguousarray(compared)):
            if reached[i]:
                events[i] = self._intern(_REACHED[self._task])
                continue
            key = row.tobytes()
            if key not in self._seen:
                if len(self._seen) > 100_000:
                    self._seen.clear()
                self._seen[key] = self._intern(self._caption(rows[i]))
            events[i] = self._seen[key]
        return events

    def _caption(self, row: Array) -> str:
        message = _message_of(row)
        if self._status_in_words and row[game.MOST_HEALTH] > 0:  # it is 0 once the game is over
            message = f"{message} {self._status(row)}".strip()
        return message

    @staticmethod
    def _status(row: Array) -> str:
        """Describe depth, health, gold and hunger, from the status at the start of a row."""
        hungry = _HUNGER[min(int(row[game.HUNGER]), len(_HUNGER) - 1)]
        health = f"health {row[game.HEALTH]} of {row[game.MOST_HEALTH]}"
        return f"Depth {row[game.DEPTH]}, {health}, gold {row[game.GOLD]}, {hungry}."

    def describe_observation(self, observation: Any) -> str:
        row, side = np.asarray(observation), self._crop
        drawn = glyphs.symbols()[row[: side**2]].reshape(side, side)
        message = _message_of(row)
        lines = [self._status(row[side**2 :]), *([f"The game says: {message}"] if message else [])]
        return "\n".join([*lines, "The map around you, who are in its middle:", *("".join(line) for line in drawn)])

    def further_measures(self, transitions: Transitions) -> Mapping[str, FloatArray]:
        """Return BALROG's progression, depth, score, and the player's proximity to a visible way down.

        That is 1 / (1 + steps to it), walls not counted: 1 on it, 0.5 beside it, 0 where none is shown.
        """
        stairs = transitions.info["stairs"]
        proximity = np.where(stairs < 0, 0.0, 1 / (1.0 + np.maximum(stairs, 0))).astype(np.float32)
        status = transitions.next_observation[:, self._crop**2 : self._crop**2 + STATUS].astype(np.int64)
        depth, score = status[:, game.DEPTH], status[:, game.SCORE]
        reached = progression(depth, status[:, game.EXPERIENCE])
        measures = {"depth": depth.astype(np.float32), "score": score.astype(np.float32)}
        return {PROGRESSION: reached, **measures, "nearness to stairs": proximity}

    def succeeded(self, returns: FloatArray, last: Transitions) -> BoolArray | None:
        return last.info["target"] > 0 if self._task in REACHED else None  # the return has penalties, too


def _message_of(row: Array) -> str:
    return collapse([_SPACES.sub(" ", line).strip() for line in said_in(row)])
