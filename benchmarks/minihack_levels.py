"""Are MiniHack's levels the same game in laurel/NetHack-v0, and how many steps per second does each make?

Each level file of MiniHack 1.0.2, including River, is played with the same random actions from the same seeds in
MiniHack's own environment and in Laurel's with `level_file`; status, message, reward and end of every step are
compared. This needs MiniHack, which Laurel does not: pip install --no-deps minihack==1.0.2 'setuptools<81'
Run it with: python benchmarks/minihack_levels.py
"""

import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from record import about, command_line, load_average, write

from laurel.envs.builtin.nethack import Games
from laurel.envs.builtin.nethack_game import MESSAGE, STATUS, actions
from laurel.errors import EnvError

N_ACTIONS = 23
CHARACTER = "rog-hum-cha-mal"
"""MiniHack's characters for these tasks; a monk dies from touching the key in one of them."""


def main() -> None:
    """Compare all levels, measure River, and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("--steps", type=int, default=300, help="of each level and seed (default: 300)")
    parser.add_argument("--seeds", type=int, default=2, help="of each level (default: 2)")
    parser.add_argument("--timed", type=int, default=4000, help="steps of River that are timed (default: 4000)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    try:
        import minihack
    except ImportError as error:
        sys.stdout.write(f"minihack_levels: nothing is compared without MiniHack ({error}).\n")
        return
    from minihack.envs.river import MiniHackRiver

    load = f"{load_average()} before the run"
    equal, different, steps, templates = 0, 0, 0, []
    for file in sorted((Path(minihack.__file__).parent / "dat").glob("*.des")):
        try:
            found, played = _differences(minihack.MiniHackNavigation, {"des_file": str(file)}, file, options)
        except EnvError:  # one of them is a template, which MiniHack fills in
            templates.append(file.name)
            continue
        equal += not found
        different += found
        steps += played
    found, played = _differences(MiniHackRiver, {}, Path("river"), options)
    theirs = _rate(_theirs(MiniHackRiver, {}), options.timed)
    ours = _rate(_Ours(), options.timed)
    write(
        "minihack_levels",
        {
            "value": [equal + (not found), different + found],
            "unit": f"MiniHack levels that are the same game; and steps that differ, of {steps + played:,}",
            "target": "no step that differs",
            "met": different + found == 0,
            "peer": "steps/s of MiniHack's River, and of Laurel's, one game in one process, resets included; "
            f"left out: {', '.join(templates)}, a template",
            "peer_value": [round(theirs), round(ours)],
        },
        about("nle", "minihack", "numpy", "gymnasium", "laurel-rl", remarks=(load,)),
    )


def _theirs(kind: Any, arguments: dict[str, Any]) -> Any:
    """Make an environment of MiniHack's with the actions and the prompts of NLE's tasks."""
    from nle.nethack import NETHACKOPTIONS

    options = (*(option for option in NETHACKOPTIONS if not option.startswith("pickup_types")), "pettype:none")
    return kind(
        **arguments,
        character=CHARACTER,
        actions=actions(),
        options=options,
        penalty_step=0.0,
        allow_all_yn_questions=False,
        max_episode_steps=10**9,
        fix_moon_phase=True,
        observation_keys=("glyphs", "blstats", "message"),
    )


def _differences(kind: Any, arguments: dict[str, Any], level: Path, options: Any) -> tuple[int, int]:
    """Return how many of a level's steps differ between the two, and how many there were."""
    ours = Games(1, task="staircase", level_file=str(level), character=CHARACTER)
    theirs = _theirs(kind, arguments)
    different = steps = 0
    for seed in range(options.seeds):
        core, disp = (int(part) for part in np.random.default_rng(seed).integers(2**62, size=2))
        theirs.seed(core, disp, False)
        seen, _ = theirs.reset()
        ours.games[0].begin(np.random.default_rng(seed))
        for action in np.random.default_rng([seed, 1]).integers(N_ACTIONS, size=options.steps).tolist():
            row, begins = ours.observe()[0], ours.crop**2
            equal = (row[-MESSAGE:] == seen["message"]).all() and (
                row[begins : begins + STATUS] == seen["blstats"]
            ).all()
            seen, reward, ended, *_ = theirs.step(action)
            own_reward, own_end = ours.games[0].step(action)
            different += not (equal and reward == own_reward and ended == own_end)
            steps += 1
            if ended or own_end:
                break
    theirs.close()
    ours.close()
    return different, steps


class _Ours:
    """River, a game at a time."""

    def __init__(self) -> None:
        self._games, self._rng = Games(1, task="staircase", level_file="river"), np.random.default_rng(0)

    def reset(self) -> None:
        self._games.games[0].begin(self._rng)

    def step(self, action: int) -> tuple[Any, float, bool, bool]:
        reward, ended = self._games.games[0].step(action)
        return self._games.observe(), reward, ended, False


def _rate(env: Any, steps: int) -> float:
    """Return steps a second, with a new episode after 350."""
    begun = time.perf_counter()
    for number, action in enumerate(np.random.default_rng(0).integers(N_ACTIONS, size=steps).tolist()):
        if number % 350 == 0:
            env.reset()
        _, _, ended, *_ = env.step(action)
        if ended:
            env.reset()
    return steps / (time.perf_counter() - begun)


if __name__ == "__main__":
    main()
