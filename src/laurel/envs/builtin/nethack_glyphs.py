"""NetHack's glyphs by kind; and the lazy import of NLE's game."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from laurel.arrays import IntArray
from laurel.errors import MissingEnvError

if TYPE_CHECKING:
    from nle import nethack

DRAWN = ' &cf@])[="(%!?+/$*`0_|.#<>{}^'
"""Kinds of glyphs, a character each: nothing, anything else, monsters, pets and so on."""
_CLASSES = '&])[="(%!?+/$*`0_&'
"""Symbol of each object class, in NetHack's order."""
_SEEN = f"&{_CLASSES}"
"""The kind of each class that networks see: shifted by one, as all agents so far were trained."""
_FEATURES = {
    "wall": "|", "door": "+", "doorway": ".", "room": ".", "corridor": "#", "staircase up": "<", "ladder up": "<",
    "staircase down": ">", "ladder down": ">", "altar": "_", "fountain": "{", "water": "}", "lava": "}", "tree": "#",
    "bars": "#", "trap": "^", "pit": "^", "hole": "^", "web": "^",
}  # fmt: skip
"""Words that end NetHack's explanation of a feature of the dungeon -> its kind."""


def nle() -> nethack:
    """Return NLE's game.

    Raises:
        MissingEnvError: it is not installed.
    """
    try:
        from nle import nethack
    except ImportError:
        raise MissingEnvError("NetHack needs the package nle: pip install 'laurel-rl[nethack]'.") from None
    return nethack


@cache
def dark() -> int:
    """Return the glyph of an unknown square."""
    return int(nle().GLYPH_CMAP_OFF)


@cache
def oracle() -> int:
    """Return the glyph of the Oracle."""
    game = nle()
    monsters = range(game.GLYPH_MON_OFF, game.GLYPH_PET_OFF)
    return next(glyph for glyph in monsters if game.permonst(game.glyph_to_mon(glyph)).mname == "Oracle")


@cache
def down() -> tuple[int, int]:
    """Return the glyphs of a staircase and of a ladder down."""
    game = nle()
    named = {game.symdef.from_idx(glyph - dark()).explanation: glyph for glyph in range(dark(), game.GLYPH_EXPLODE_OFF)}
    return named["staircase down"], named["ladder down"]


@cache
def kinds_of_glyphs() -> IntArray:
    """Return the kind of each glyph (5977,) that networks see, a place in DRAWN."""
    return _places(_SEEN)


@cache
def symbols() -> npt.NDArray[np.str_]:
    """Return an approximate display character for each glyph (5977,)."""
    return np.array(list(DRAWN))[_places(_CLASSES)]


def _places(classes: str) -> IntArray:
    """Return the place in DRAWN of each glyph (5977,), where objects are drawn as their classes say."""
    game = nle()
    kinds = np.full(game.MAX_GLYPH + 1, DRAWN.index("&"), dtype=np.int64)
    for glyph in range(len(kinds)):
        if game.glyph_is_pet(glyph):
            drawn = "f"
        elif game.glyph_is_normal_monster(glyph):
            drawn = "@" if game.permonst(game.glyph_to_mon(glyph)).mname in _HUMANS else "c"
        elif game.glyph_is_body(glyph):
            drawn = "%"
        elif game.glyph_is_normal_object(glyph):
            drawn = classes[ord(game.objclass(game.glyph_to_obj(glyph)).oc_class)]
        elif game.glyph_is_cmap(glyph):
            drawn = _feature(game.symdef.from_idx(glyph - game.GLYPH_CMAP_OFF).explanation)
        else:
            continue
        kinds[glyph] = DRAWN.index(drawn)
    kinds[dark()] = DRAWN.index(" ")
    return kinds


_HUMANS = {"monk", "valkyrie", "samurai", "wizard", "priest", "priestess", "ranger", "rogue", "knight", "healer",
           "tourist", "archeologist", "barbarian", "caveman", "cavewoman"}  # fmt: skip
"""Players' roles, as NetHack names the figure of a player."""


def _feature(explanation: str) -> str:
    return next((drawn for words, drawn in _FEATURES.items() if explanation.endswith(words)), "&")
