"""Steps a second of laurel/NetHack-v0 with random actions, beside NLE's own environment, and whether both are one game.

N games in one process on each side, in turns: Laurel's vector form, and N of NLE's `NetHackScore` with all that it
shows by default. What is compared is status, message, reward and end of every step of one game a seed.
Run it with: python benchmarks/nethack_steps.py
"""

import time
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from record import about, command_line, load_average, write

import laurel.envs.builtin  # noqa: F401  registers it
from laurel.envs.builtin.nethack import MESSAGE, STATUS, Games

TARGET = 4.0
N_ACTIONS = 23


def main() -> None:
    """Measure, compare, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--games", type=int, default=8, help="stepped at once on each side (default: 8)")
    parser.add_argument("--steps", type=int, default=2500, help="of each game in a round (default: 2500)")
    parser.add_argument("--rounds", type=int, default=3, help="of both, in turns (default: 3)")
    parser.add_argument("--seeds", type=int, default=10, help="games that are compared (default: 10)")
    parser.add_argument("--compared", type=int, default=10_000, help="steps of each of them (default: 10000)")
    arguments = parser.parse_args()
    load = f"{load_average()} before the run"
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(_ours(arguments.games, arguments.steps))
        theirs.append(_theirs(arguments.games, arguments.steps))
    different = sum(_differences(seed, arguments.compared) for seed in range(arguments.seeds))
    ratio = float(np.median(ours) / np.median(theirs))
    found: dict[str, Any] = {
        "value": round(ratio, 2),
        "unit": f"times as many steps/s as NLE's environment, {arguments.games} games in one process",
        "target": f">= {TARGET}, and no step that differs",
        "met": ratio >= TARGET and different == 0,
        "peer": f"steps/s of NLE's; Laurel's; steps that differ of {arguments.seeds} x {arguments.compared:,}",
        "peer_value": [round(float(np.median(theirs))), round(float(np.median(ours))), different],
        "why": "NetHack's own step is most of what is left, and takes longer the more games share the caches.",
    }
    write("nethack_steps", found, about("nle", "numpy", "gymnasium", "laurel-rl", remarks=(load,)))


def _ours(games: int, steps: int) -> float:
    envs = gym.make_vec("laurel/NetHack-v0", num_envs=games, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, games))
    begun = time.perf_counter()
    for action in actions:
        envs.step(action)
    rate = actions.size / (time.perf_counter() - begun)
    envs.close()
    return rate


def _theirs(games: int, steps: int) -> float:
    from nle.env.tasks import NetHackScore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs = [NetHackScore(fix_moon_phase=True) for _ in range(games)]
    for env in envs:
        env.reset()
    actions = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, games))
    begun = time.perf_counter()
    for row in actions.tolist():
        for env, action in zip(envs, row, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
    rate = actions.size / (time.perf_counter() - begun)
    for env in envs:
        env.close()
    return rate


def _differences(seed: int, steps: int) -> int:
    """Return how many of a game's steps differ between the two."""
    from nle.env.tasks import NetHackScore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keys = ("glyphs", "blstats", "message")
        theirs = NetHackScore(max_episode_steps=10**9, fix_moon_phase=True, observation_keys=keys)
    games = Games(1, task="score")
    actions = np.random.default_rng(seed).integers(0, N_ACTIONS, steps).tolist()
    episode = different = 0

    def begin() -> None:
        core, disp = (int(one) for one in np.random.default_rng([seed, episode]).integers(2**62, size=2))
        theirs.seed(core, disp, reseed=False)
        theirs.reset()
        games.games[0].begin(np.random.default_rng([seed, episode]))

    begin()
    for action in actions:
        seen, reward, ended, *_ = theirs.step(action)
        own_reward, own_end = games.games[0].step(action)
        row = games.observe()[0]
        same = (row[-MESSAGE:] == seen["message"]).all() and (
            row[-MESSAGE - STATUS : -MESSAGE] == seen["blstats"]
        ).all()
        different += not (same and abs(reward - own_reward) < 1e-9 and ended == own_end)
        if ended or own_end:
            episode += 1
            begin()
    theirs.close()
    games.close()
    return different


if __name__ == "__main__":
    main()
