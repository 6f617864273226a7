"""Custom levels for NetHack in the game's level description language, as in MiniHack (Samvelyan et al. 2021, arXiv
2109.13202).

NLE brings NetHack's compilers: a level is compiled once per process, into the file that games read in place of NLE's
own. It is the first level of the dungeon; the levels below it are not used.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from laurel.envs.builtin.nethack_glyphs import nle
from laurel.errors import EnvError, closest

LEVELS = Path(__file__).resolve().with_name("levels")
NAME = "mylevel"
"""Required name of the level in its file, as in MiniHack."""
OPTIONS = ("pettype:none",)
"""Options of the game in addition to NLE's: the player has no pet."""
_FIRST = f'LEVEL: "{NAME}" "none" @ (1, 0)\n'
_SECONDS = 20.0


def level_file(name: str) -> Path:
    """Return the file of a level: by name if it comes with Laurel, otherwise by path.

    Raises:
        EnvError: there is no such file.
    """
    known = {file.stem: file for file in sorted(LEVELS.glob("*.des"))}
    if name in known:
        return known[name]
    if not Path(name).is_file():
        raise EnvError(
            f"NetHack: level_file is {name}, which is not a file.{closest(name, known)} Give a file in NetHack's "
            f"description language (.des), or one of {', '.join(known)}."
        )
    return Path(name)


def compiled(name: str) -> bytes:
    """Return the content of nhdat, which a game with this level reads; errors as in `level_file` and `_compiled`."""
    file = level_file(name)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvError(f"{file}: cannot be read ({error}).") from None
    return _compiled(text, str(file))


@cache
def _compiled(text: str, file: str) -> bytes:
    """Compile a level into a dungeon that holds only this level.

    Raises:
        EnvError: NetHack's compiler rejects the level, or its name is not NAME.
    """
    tools = Path(str(nle().__file__)).parents[1] / "nethackdir"
    with tempfile.TemporaryDirectory(prefix="laurel-nethack-") as place:
        build = Path(place)
        (build / "level.des").write_text(text, encoding="utf-8")
        dungeon = (tools / "dat" / "dungeon.def").read_text(encoding="utf-8")
        (build / "dungeon.pdf").write_text(dungeon.replace("BRANCH:", f"{_FIRST}BRANCH:", 1), encoding="utf-8")
        shutil.copy(tools / "nhdat", build / "nhdat")
        _call(build, file, tools / "dlb", "xf", "nhdat", "quest.dat")
        _call(build, file, tools / "dgn_comp", "dungeon.pdf")
        _call(build, file, tools / "lev_comp", "level.des")
        if not (build / f"{NAME}.lev").exists():
            raise EnvError(f'{file}: has no level of the name "{NAME}": begin it with LEVEL: "{NAME}".')
        (build / "nhdat").unlink()
        _call(build, file, tools / "dlb", "cf", "nhdat", "dungeon", "quest.dat", f"{NAME}.lev")
        return (build / "nhdat").read_bytes()


def _call(folder: Path, file: str, *command: object) -> None:
    """Run one of NetHack's tools, which write errors to standard error."""
    done = subprocess.run(  # noqa: S603 - NLE's own programs, on files of this folder
        [str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())
        raise EnvError(f"{file}: NetHack's {Path(str(command[0])).name} refuses it ({output[:300]}).")
