"""BabyAI, and MiniGrid's tasks whose mission varies: observations hold it, and captions refer to it.

A mission is one to four clauses, such as "go to a red ball", in BabyAI's grammar (`minigrid.envs.babyai`): "A and B,
then C and D", or the same as "C and D after you A and B". A packed observation has it as numbers after image and
direction: how its two halves are joined, then four places for clauses, the first two for the half that is said first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.arrays import Array, BoolArray, FloatArray, IntArray
from laurel.envs.base import Feature
from laurel.envs.minigrid import Case, MiniGridAdapter, cell_of, kind_of
from laurel.envs.minigrid_codes import (
    ABOUT,
    BALL,
    BOX,
    CARRIED,
    CLOSE_DOOR,
    CLOSER,
    COLORS,
    DOOR,
    ENDINGS,
    FRONT,
    GO_TO,
    GOES_ON,
    IMAGE,
    KEY,
    NOTHING,
    OBJECTS,
    OPEN_DOOR,
    PASS_DOOR,
    PICK_UP,
    PUT_DOWN,
    SEE,
    SHAPE,
    UNLOCK,
    VIEW,
    Relation,
    event_indices,
)
from laurel.errors import EnvError

THINGS = (DOOR, KEY, BALL, BOX)
ANY = len(OBJECTS)
"""The kind "object": any of THINGS."""
KINDS: Mapping[str, int] = {OBJECTS[thing]: thing for thing in THINGS} | {"object": ANY}
WHERE = ("", " in front of you", " behind you", " on your left", " on your right")
"""Position of the object when the episode began."""
ARTICLES = ("a", "the")
JOINS = ("", ", then ", " after you ")
OPEN, GO, PICK, PUT = range(1, 5)
VERBS: Mapping[str, int] = {
    "open": OPEN,
    "go to": GO,
    "pick up": PICK,
    "put": PUT,
    **dict.fromkeys(("get", "go get", "fetch", "go fetch", "you must fetch"), PICK),
}
"""Verb -> what it asks for."""
BESIDE = ("", " next to ", " near ")

HALF, CLAUSES, THING = 2, 4, 4
VERB, AT, FIRST, SECOND = 0, 1, 2, 2 + THING
CLAUSE = 2 + 2 * THING
SIZE = 1 + CLAUSES * CLAUSE
"""Numbers of a mission: how halves are joined; of each clause the verb, "next to" or "near", and two objects, each with
its article, kind, colour (0: any; else one more than MiniGrid's number) and place."""
_ARTICLE, _KIND, _COLOR, _WHERE = range(THING)
_VERBS = tuple(VERBS)
_ASKS_FOR = np.array([0, *VERBS.values()])

_OBJECT = (
    rf"(?:{'|'.join(ARTICLES)}) (?:(?:{'|'.join(COLORS)}) )?(?:{'|'.join(KINDS)})(?:{'|'.join(filter(None, WHERE))})?"
)
_CLAUSE = re.compile(
    rf"(?P<verb>{'|'.join(sorted(VERBS, key=len, reverse=True))}) (?P<first>{_OBJECT})"
    rf"(?:(?P<at>{'|'.join(filter(None, BESIDE))})(?P<second>{_OBJECT}))?"
)
_PARTS = re.compile(rf"({'|'.join(ARTICLES)}) (?:({'|'.join(COLORS)}) )?({'|'.join(KINDS)})(.*)")

# -- a mission as numbers ---------------------------------------------------------------------------


def numbers_of(mission: str) -> Array:
    """Return the numbers (SIZE,) of a mission.

    Raises:
        ValueError: it is not of BabyAI's grammar.
    """
    row = np.zeros(SIZE, dtype=np.uint8)
    row[0] = next((number for number, words in enumerate(JOINS) if words and words in mission), 0)
    for half, part in enumerate(mission.split(JOINS[row[0]]) if row[0] else [mission]):
        for place, clause in enumerate(part.split(" and ")):
            match = _CLAUSE.fullmatch(clause)
            if match is None or half >= HALF or place >= CLAUSES // HALF:
                raise ValueError(mission)
            start = 1 + (half * CLAUSES // HALF + place) * CLAUSE
            row[start + VERB] = 1 + _VERBS.index(match["verb"])
            row[start + AT] = BESIDE.index(match["at"] or "")
            for offset, words in ((FIRST, match["first"]), (SECOND, match["second"])):
                if words:
                    row[start + offset : start + offset + THING] = _numbers_of_object(words)
    return row


def _numbers_of_object(words: str) -> tuple[int, int, int, int]:
    parts = _PARTS.fullmatch(words)
    assert parts is not None
    article, color, kind, location = parts.groups()
    return ARTICLES.index(article), KINDS[kind], COLORS.index(color) + 1 if color else 0, WHERE.index(location)


def words_of(row: Array) -> str:
    """Return the mission whose numbers are given: the inverse of `numbers_of`."""
    clauses = row[1:].reshape(HALF, CLAUSES // HALF, CLAUSE).tolist()
    halves = [" and ".join(_clause_in_words(clause) for clause in half if clause[VERB]) for half in clauses]
    return JOINS[int(row[0])].join(filter(None, halves))


def _clause_in_words(clause: list[int]) -> str:
    second = BESIDE[clause[AT]] + _object_in_words(clause[SECOND:]) if clause[AT] else ""
    return f"{_VERBS[clause[VERB] - 1]} {_object_in_words(clause[FIRST:SECOND])}{second}"


def _object_in_words(thing: list[int]) -> str:
    kind = next(name for name, number in KINDS.items() if number == thing[_KIND])
    color = f"{COLORS[thing[_COLOR] - 1]} " if thing[_COLOR] else ""
    return f"{ARTICLES[thing[_ARTICLE]]} {color}{kind}{WHERE[thing[_WHERE]]}"


# -- what a mission has to do with what is seen -----------------------------------------------------
def named(missions: Array, thing: slice, cells: Array) -> Array:
    """Say how one object of missions (N, SIZE) fits cells (N, K, 2 or more): NONE, MAY_BE or NAMED (N, K).

    MAY_BE if the mission says where the object was at the start, which cannot be seen later.
    """
    kind, color, location = (missions[:, thing.start + part, None] for part in (_KIND, _COLOR, _WHERE))
    fits = (cells[..., 0] == kind) | ((kind == ANY) & np.isin(cells[..., 0], THINGS))
    fits &= (color == 0) | (cells[..., 1] + 1 == color)
    return fits * np.where(location == 0, Relation.NAMED, Relation.MAY_BE)


def _objects(missions: Array) -> Iterable[tuple[slice, IntArray]]:
    """Yield each slice of a mission that may hold an object, with the rows (M,) that have one there."""
    for clause in range(CLAUSES):
        for offset in (FIRST, SECOND):
            start = 1 + clause * CLAUSE + offset
            rows = np.flatnonzero(missions[:, start + _KIND])
            if len(rows):
                yield slice(start, start + THING), rows


class MissionAdapter(MiniGridAdapter):
    """MiniGrid with the mission in observations, and captions that say which things it is about."""

    ids = ("BabyAI-*", "MiniGrid-Fetch-*", "MiniGrid-GoToDoor-*", "MiniGrid-GoToObject-*", "MiniGrid-PutNear-*")
    version = 3
    observation_features = (
        *MiniGridAdapter.observation_features,
        Feature(
            "mission", "what the mission asks for first: 1 open, 2 go to, 3 pick up, 4 put beside another", whole=True
        ),
        *(
            Feature(f"mission_{thing}_{part}", f"{meaning} of the {ordinal} object that it names", whole=True)
            for thing, ordinal in (("thing", "first"), ("other", "second"))
            for part, meaning in (
                ("kind", f"kind (4 door, 5 key, 6 ball, 7 box, {ANY} any of them; 0 where there is none)"),
                ("color", f"colour (0 any, {', '.join(f'{n} {color}' for n, color in enumerate(COLORS, 1))})"),
            )
        ),
    )

    def __init__(
        self, env_id: str, observation_space: gym.Space[Any], action_space: gym.Space[Any], *, with_action: bool = False
    ) -> None:
        super().__init__(env_id, observation_space, action_space, with_action=with_action)
        self._known: dict[str | bytes, Array] = {}

    # -- observations: image (147), direction (1) and mission (SIZE) as one row of bytes ----------
    @property
    def observation_size(self) -> int:
        return IMAGE + 1 + SIZE

    def pack(self, observation: Any) -> Array:
        missions = [self._mission(text) for text in observation["mission"]]
        return np.concatenate([super().pack(observation), np.stack(missions)], axis=1)

    def pack_one(self, observation: Any) -> Array:
        return np.append(super().pack_one(observation), self._mission(observation["mission"]))

    def _mission(self, text: Any) -> Array:
        """Return the numbers of a mission, a string or, as EnvPool gives it, letters and zeros after them.

        Raises:
            EnvError: it cannot be read.
        """
        key: str | bytes = text if isinstance(text, str) else text.tobytes()
        if key not in self._known:
            words = key if isinstance(key, str) else key.rstrip(b"\0").decode()
            try:
                self._known[key] = numbers_of(words)
            except ValueError:
                raise EnvError(
                    f'{self.env_id}: its mission "{words}" is not of BabyAI\'s grammar, such as "pick up a red ball, '
                    'then open the door on your left". Write an adapter for it, or give it an id that does not begin '
                    "with BabyAI-."
                ) from None
        return self._known[key]

    def unpack(self, row: Array) -> dict[str, Any]:
        return {**super().unpack(row), "mission": words_of(row[IMAGE + 1 :])}

    def features(self, observation: Array) -> FloatArray:
        """Add the mission to the view, one-hot: verb and both objects of four clauses, and how halves are joined."""
        clauses = observation[:, IMAGE + 2 :].reshape(-1, CLAUSES, CLAUSE)
        asks = _ASKS_FOR[clauses[..., VERB]]
        columns = [(asks == code) for code in (OPEN, GO, PICK, PUT)]
        for clause_offset in (FIRST, SECOND):
            columns += [clauses[..., clause_offset + _KIND] == kind for kind in KINDS.values()]
            columns += [clauses[..., clause_offset + _COLOR] == color for color in range(1, len(COLORS) + 1)]
            columns += [clauses[..., clause_offset + _WHERE] == location for location in range(1, len(WHERE))]
        mission = np.stack(columns, axis=2).reshape(len(observation), -1)
        joins = observation[:, IMAGE + 1, None] == np.arange(1, len(JOINS))
        return np.concatenate([super().features(observation), mission, joins], axis=1, dtype=np.float32)

    def feature_values(self, observation: Array) -> Array:
        first = observation[:, IMAGE + 2 : IMAGE + 2 + CLAUSE].astype(np.int64)
        parts = [first[:, offset + part] for offset in (FIRST, SECOND) for part in (_KIND, _COLOR)]
        return np.concatenate(
            [super().feature_values(observation), np.stack([_ASKS_FOR[first[:, VERB]], *parts], axis=1)], axis=1
        )

    def describe_observation(self, observation: Any) -> str:
        """Describe the view, after the mission in its own words."""
        return f"Your mission: {observation['mission']}. {super().describe_observation(observation)}"

    # -- captions -------------------------------------------------------------------------------
    def further_cases(self, before: Array, after: Array, moved: BoolArray, turned: BoolArray) -> list[Case]:
        """Say that the agent comes to a thing that the mission names, sees it, or comes closer to it."""
        missions, front = before[:, IMAGE + 1 :], cell_of(after, FRONT)
        earlier, later = (view[:, :IMAGE].reshape(-1, VIEW * VIEW, 3) for view in (before, after))
        seen, near = (np.full((len(before), 3), _NOTHING) for _ in range(2))
        arrives = np.zeros(len(before), dtype=np.bool_)
        for thing, rows in _objects(missions):
            mission = missions[rows]
            arrives[rows] |= named(mission, thing, front[rows, None])[:, 0] > 0
            fits_before, fits_after = named(mission, thing, earlier[rows]) > 0, named(mission, thing, later[rows]) > 0
            _keep_nearest(seen, rows, later[rows], fits_after & ~fits_before.any(axis=1, keepdims=True))
            _keep_nearest(near, rows, earlier[rows], fits_before & _AHEAD)
        at_door = cell_of(before, FRONT)[:, 0] == DOOR
        return [
            ((moved | turned) & arrives, GO_TO, kind_of(front)),
            ((moved | turned) & (seen[:, 0] < _NOTHING), SEE, kind_of(seen[:, 1:])),
            (moved & ~at_door & (near[:, 0] < _NOTHING), CLOSER, kind_of(near[:, 1:])),
        ]

    def relations(self, before: Array, event: IntArray, kind: IntArray) -> IntArray:
        missions, cells = before[:, IMAGE + 1 :], np.stack(np.divmod(kind, len(COLORS)), axis=1)[:, None]
        relation = np.zeros(len(event), dtype=np.int64)
        for thing, rows in _objects(missions):
            mission = missions[rows]
            fits = named(mission, thing, cells[rows])[:, 0]
            clause, offset = divmod(thing.start - 1, CLAUSE)
            if offset == FIRST:
                verb, done = _ASKS_FOR[mission[:, thing.start - FIRST]], _DOES[event[rows]]
                asked = (verb == done) | ((verb == PUT) & (done == PICK))
                timing = _WHEN[mission[:, 0], clause * HALF // CLAUSES]
                fits = np.where(asked & (fits == Relation.NAMED), timing, fits)
            relation[rows] = np.maximum(relation[rows], fits)
        return relation

    def events(self) -> Iterable[int]:
        yield from super().events()
        things = [pair for pair in self.things() if pair[0] in THINGS]
        for verb in ABOUT:
            objects = [pair for pair in things if pair[0] in ABOUT[verb]]
            for relation in Relation if self._varied else _PLAIN:
                mentioned = relation is not Relation.NONE or verb in (GO_TO, CLOSER)
                if mentioned and (relation <= Relation.NAMED or _DOES[verb]) and self._goes_on(verb, relation):
                    yield from event_indices(verb, GOES_ON, objects, with_action=self.with_action, relation=relation)

    @property
    def _varied(self) -> bool:
        """Whether missions may be any of BabyAI's grammar; otherwise all are of one clause that asks for one verb."""
        return self.env_id.startswith("BabyAI-")

    def _possible(self, verb: int) -> bool:
        return super()._possible(verb) and self._goes_on(verb, Relation.NONE)

    def _goes_on(self, verb: int, relation: Relation) -> bool:
        """Whether an episode may continue after an event with this relation to a mission of one clause."""
        if self._varied:
            return True
        if verb not in (GO_TO, CLOSER) and not super()._possible(verb):
            return False
        if verb in _NEEDS and not any(self._goes_on(_NEEDS[verb], plain) for plain in _PLAIN):
            return False
        solved, failed = ({ENDINGS[words] for words in ends} for ends in (self._task.solved_by, self._task.failed_by))
        asks = {_FIRST[ending] for ending in solved if ending in _FIRST}
        is_asked = bool(_DOES[verb]) and _DOES[verb] in asks
        if (relation is Relation.ASKED) != is_asked and relation is not Relation.NONE:
            return False
        if verb in (GO_TO, CLOSER):  # the episode ends by another action there
            return relation is not Relation.NONE
        return verb == NOTHING or (verb not in solved and (verb not in failed or relation is Relation.ASKED))


def _keep_nearest(kept: IntArray, rows: IntArray, cells: Array, mask: BoolArray) -> None:
    """Update `kept` (N, 3), the distance, kind and colour of the nearest fitting cell, with cells (M, K, 3).

    An entry at the same distance is kept; of equally near cells the first is taken.
    """
    far = np.where(mask, _FAR, _NOTHING)
    nearest = far.argmin(axis=1)
    nearest_cell = np.arange(len(rows)), nearest
    nearer = far[nearest_cell] < kept[rows, 0]
    kept[rows[nearer], 0] = far[nearest_cell][nearer]
    kept[rows[nearer], 1:] = cells[nearest_cell][nearer, :2]


_X, _Y = (place.reshape(-1) for place in np.indices((VIEW, VIEW)))
_FAR = CARRIED[1] - _Y + np.abs(_X - CARRIED[0])
"""Steps to each cell of the view."""
_NOTHING = 2 * VIEW
"""More than all of them."""
_AHEAD = np.abs(_X - CARRIED[0]) < _FAR

_DOES = np.zeros(SHAPE[1], dtype=np.int64)
_DOES[[OPEN_DOOR, UNLOCK, GO_TO, PICK_UP]] = OPEN, OPEN, GO, PICK
"""Event -> the verb of a mission that it fulfils."""
_NEEDS = {PUT_DOWN: PICK_UP, CLOSE_DOOR: OPEN_DOOR, PASS_DOOR: OPEN_DOOR}
"""Event -> the one after which alone it is possible."""
_FIRST = {GO_TO: GO, PICK_UP: PICK, PUT_DOWN: PICK}
"""Event that completes a mission -> what the mission asks for first."""
_PLAIN = (Relation.NONE, Relation.NAMED, Relation.ASKED)
"""Relations in missions of one clause that does not say where things are."""
_WHEN = np.array(
    [
        [Relation.ASKED, Relation.ASKED],
        [Relation.ASKED_FIRST, Relation.ASKED_LAST],
        [Relation.ASKED_LAST, Relation.ASKED_FIRST],
    ]
)
"""How the halves of a mission are joined, and which half an event is in -> the event's relation."""
