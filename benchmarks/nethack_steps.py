"""Steps per second of laurel/NetHack-v0 with random actions, compared with NLE's own environment; are both the same
game?

N games run in one process on each side, in turns: Laurel's vector form, and N of NLE's `NetHackScore` with its
default observations. Also measured: NLE with only the observations that Laurel reads; Laurel's games stepped without
reading observations, the upper bound for any adapter; and NLE's raw games without answering prompts, which are stuck
at a prompt most of the time. Seconds are CPU time, so that other work on the machine counts less. Status, message,
reward and end of every step are compared in one game per seed. Run it with: python benchmarks/nethack_steps.py
"""

import time
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from record import about, command_line, load_average, write

import laurel.envs.builtin  # noqa: F401  registers it
from laurel.envs.builtin.nethack import Games
from laurel.envs.builtin.nethack_game import MESSAGE, STATUS, actions

TARGET = 4.0
N_ACTIONS = 23
KEYS = ("glyphs", "blstats", "message")
"""NLE's observations that Laurel reads."""


def main() -> None:
    """Measure, compare, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="of all games of a side in a round (default: 20000)")
    parser.add_argument("--rounds", type=int, default=3, help="of both, in turns (default: 3)")
    parser.add_argument("--seeds", type=int, default=10, help="games that are compared (default: 10)")
    parser.add_argument("--compared", type=int, default=10_000, help="steps of each of them (default: 10000)")
    arguments = parser.parse_args()
    load = f"{load_average()} before the run"
    rates = {games: _rates(games, arguments.steps // games, arguments.rounds) for games in (8, 1)}
    different = sum(_differences(seed, arguments.compared) for seed in range(arguments.seeds))
    (nle, less, ours, unseen, _), (one_nle, one_less, one_ours, one_unseen, one_raw) = rates[8], rates[1]
    ratio, alone = ours / nle, one_ours / one_nle
    found: dict[str, Any] = {
        "value": [round(ratio, 2), round(alone, 2)],
        "unit": "times the steps per CPU second of NLE's environment, 8 games in one process, and one",
        "target": f">= {TARGET}, and no step that differs",
        "met": ratio >= TARGET and different == 0,
        "peer": "steps/s of NLE's; of NLE's with fewer observations; of Laurel's; of the same games without "
        "observations; "
        "of raw games with unanswered prompts: with 8, and with one; steps that differ of "
        f"{arguments.seeds} x {arguments.compared:,}",
        "peer_value": [*(round(rate) for games in (8, 1) for rate in rates[games]), different],
        "why": f"Games stepped without reading observations, the upper bound for any adapter, make {unseen / nle:.1f} "
        f"and {one_unseen / one_nle:.1f} times the steps of NLE's environment. Nearly all of the gain comes from "
        "requesting fewer observations: NLE's environment with only the observations that Laurel reads makes "
        f"{less:,.0f} and {one_less:,.0f} steps/s; Laurel's makes {ours / less:.2f} and {one_ours / one_less:.2f} "
        "times "
        "as many, since array operations take as long for one game as for 8. Raw games seem faster "
        f"({one_raw / one_nle:.1f} times) only until a prompt or menu opens: random keys leave it open, the game's "
        "clock stands still in 92% of such steps, and both environments answer prompts. A profile (perf) of games "
        "without reading observations: 55% is NetHack's own code, spread thinly (no function has 7%), 15% the C "
        "library, "
        "much of it to write an unused status line, 17% Python, 6% the kernel. NLE's default observations are "
        f"{1 - one_nle / one_less:.0%} of its cost, and left out here. With 8 games the limit is the processor's "
        "caches: each game is a copy of the program. In a trial, sharing one copy's code gave 1.3 times the steps, but "
        "this means replacing a loaded library's memory. A step holds Python's lock, so threads gain nothing; agents "
        "run in separate processes.",
    }
    write("nethack_steps", found, about("nle", "numpy", "gymnasium", "laurel-rl", remarks=(load,)))


def _rates(games: int, steps: int, rounds: int) -> list[float]:
    """Return steps/s of NLE's environment, of it with less to show, of Laurel's, of games not looked at, of raw ones.

    Medians of rounds.
    """
    measures = (_theirs, partial(_theirs, observation_keys=KEYS), _ours, _unseen, _raw)
    found = [[measure(games, steps) for measure in measures] for _ in range(rounds)]
    return [float(rate) for rate in np.median(found, axis=0)]


def _unseen(games: int, steps: int) -> float:
    alone = Games(games, task="score")
    for number, game in enumerate(alone.games):
        game.begin(np.random.default_rng(number))
    chosen = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, games))
    begun = time.process_time()
    for number, row in enumerate(chosen.tolist()):
        for game, action in zip(alone.games, row, strict=True):
            if game.step(action)[1]:
                game.begin(np.random.default_rng(number))
    rate = chosen.size / (time.process_time() - begun)
    alone.close()
    return rate


def _ours(games: int, steps: int) -> float:
    envs = gym.make_vec("laurel/NetHack-v0", num_envs=games, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    chosen = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, games))
    begun = time.process_time()
    for action in chosen:
        envs.step(action)
    rate = chosen.size / (time.process_time() - begun)
    envs.close()
    return rate


def _raw(games: int, steps: int) -> float:
    """Step with keys alone and show all: what is on the screen is not looked at, and prompts stay open."""
    from nle import nethack

    raw = [nethack.Nethack(playername="Agent-mon-hum-neu-mal", ttyrec=None) for _ in range(games)]
    for number, game in enumerate(raw):
        game.set_initial_seeds(number, number)
        game.reset()
    keys = np.random.default_rng(0).choice(actions(), (steps, games))
    begun = time.process_time()
    for row in keys.tolist():
        for game, key in zip(raw, row, strict=True):
            if game.step(key)[1]:
                game.reset()
    rate = keys.size / (time.process_time() - begun)
    for game in raw:
        game.close()
    return rate


def _theirs(games: int, steps: int, **shown: Any) -> float:
    from nle.env.tasks import NetHackScore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs = [NetHackScore(fix_moon_phase=True, **shown) for _ in range(games)]
    for env in envs:
        env.reset()
    chosen = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, games))
    begun = time.process_time()
    for row in chosen.tolist():
        for env, action in zip(envs, row, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
    rate = chosen.size / (time.process_time() - begun)
    for env in envs:
        env.close()
    return rate


def _differences(seed: int, steps: int) -> int:
    """Return how many of a game's steps differ between the two."""
    from nle.env.tasks import NetHackScore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = NetHackScore(max_episode_steps=10**9, fix_moon_phase=True, observation_keys=KEYS)
    games = Games(1, task="score")
    chosen = np.random.default_rng(seed).integers(0, N_ACTIONS, steps).tolist()
    episode = different = 0

    def begin() -> None:
        core, disp = (int(one) for one in np.random.default_rng([seed, episode]).integers(2**62, size=2))
        theirs.seed(core, disp, reseed=False)
        theirs.reset()
        games.games[0].begin(np.random.default_rng([seed, episode]))

    begin()
    for action in chosen:
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
