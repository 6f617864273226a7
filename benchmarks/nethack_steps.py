"""Steps per second of laurel/NetHack-v0 with random actions, compared with NLE's own environment; are both the same
game?

N games run in one process on each side, in turns: Laurel's vector form, and N of NLE's `NetHackScore` with its
default observations. Also measured: NLE without `screen_descriptions`, which changes the game; NLE with only the
observations that Laurel reads; Laurel's games stepped without reading observations; the limit: NLE's compiled game
given the same keys as these, resets included, and nothing else; and games without answering prompts, which are stuck
at a prompt most of the time. Seconds are CPU time, so that other work on the machine counts less.

Map, status, message, reward and end of every step are compared in one game per seed, with NLE's default observations
but `screen_descriptions`.

Then, in wall-clock time: 32 of Laurel's games divided among two processes, and NLE's environments in one process and in
two that do not wait for each other; --processes measures these alone. Run it with:
python benchmarks/nethack_steps.py
"""

import multiprocessing
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from record import about, command_line, load_average, write

import laurel.envs.builtin  # noqa: F401  registers it
from laurel.envs.builtin.nethack import Games
from laurel.envs.builtin.nethack_game import MESSAGE, STATUS, Game, actions

TARGET = 4.0
N_ACTIONS = 23
DIVIDED = 32
"""Games that are divided among processes: of 8, each step is too short to share."""
KEYS = ("glyphs", "blstats", "message")
"""NLE's observations that Laurel reads."""
OTHERS = (
    "glyphs", "chars", "colors", "specials", "blstats", "message", "inv_glyphs", "inv_strs", "inv_letters",
    "inv_oclasses", "tty_chars", "tty_colors", "tty_cursor",
)  # fmt: skip
"""NLE's default observations but `screen_descriptions`: describing a square can change object names."""
Clock = Callable[[], float]


class Rates(NamedTuple):
    """Steps per second."""

    theirs: float
    """NLE's environment."""
    others: float
    """NLE's without screen_descriptions."""
    less: float
    """NLE's with only the observations that Laurel reads."""
    ours: float
    unseen: float
    """Laurel's games without reading observations."""
    limit: float
    """NLE's compiled game given the same keys, and nothing else."""
    open: float
    """The compiled game given random keys, where prompts stay open."""


def main() -> None:
    """Measure, compare, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--steps", type=int, default=20_000, help="of all games of a side in a round (default: 20000)")
    parser.add_argument("--rounds", type=int, default=3, help="of all, in turns (default: 3)")
    parser.add_argument("--seeds", type=int, default=10, help="games that are compared (default: 10)")
    parser.add_argument("--compared", type=int, default=10_000, help="steps of each of them (default: 10000)")
    parser.add_argument("--processes", action="store_true", help="measure games divided among two processes alone")
    arguments = parser.parse_args()
    load = f"{load_average()} before the run"
    common = about("nle", "numpy", "gymnasium", "laurel-rl", remarks=(load,))
    if not arguments.processes:
        write("nethack_steps", _compared(arguments), common, last=False)
    write("nethack_processes", _processes(arguments.steps // DIVIDED, arguments.rounds), common)


def _compared(arguments: Namespace) -> dict[str, Any]:
    """Return the record of rates per CPU second, with the steps that differ."""
    eight, single = (_rates(games, arguments.steps // games, arguments.rounds) for games in (8, 1))
    different = sum(_differences(seed, arguments.compared) for seed in range(arguments.seeds))
    ratio, single_ratio = eight.ours / eight.theirs, single.ours / single.theirs
    return {
        "value": [round(ratio, 2), round(single_ratio, 2)],
        "unit": "times the steps per CPU second of NLE's environment, 8 games in one process, and one",
        "target": f">= {TARGET}, and no step that differs",
        "met": ratio >= TARGET and different == 0,
        "peer": "steps/s of NLE's; of NLE's without screen_descriptions; of NLE's with only the observations that "
        "Laurel reads; of Laurel's; of the same games without observations; of NLE's compiled game given the same keys "
        "(the limit); of games with unanswered prompts: with 8, and with one; steps that differ of "
        f"{arguments.seeds} x {arguments.compared:,}",
        "peer_value": [*(round(rate) for rate in (*eight, *single)), different],
        "why": "The limit is NLE's compiled game given the same keys, resets included, without reading observations: "
        f"{eight.limit / eight.theirs:.2f} and {single.limit / single.theirs:.2f} times the steps of NLE's environment."
        f" Laurel's Python loop that chooses these keys makes {eight.unseen / eight.theirs:.2f} and "
        f"{single.unseen / single.theirs:.2f} times. Most of the gain comes from requesting fewer observations: NLE's "
        f"environment without screen_descriptions, which also change the game, makes {eight.others / eight.theirs:.2f} "
        f"and {single.others / single.theirs:.2f} times, with only the observations that Laurel reads "
        f"{eight.less / eight.theirs:.2f} and {single.less / single.theirs:.2f} times. Laurel makes "
        f"{eight.ours / eight.less:.2f} and {single.ours / single.less:.2f} times the steps of the latter, since array "
        "operations take as long for one game as for 8. The same loop in C, called through ctypes, made 2.5 to 3.0 "
        "times the steps of NLE's environment in a trial; it is not shipped. Games given random keys seem faster "
        f"({single.open / single.theirs:.1f} times), but the game's clock stands still in 92% of their steps, because "
        "prompts stay open. With 8 games the limit is the processor's caches: each game is a copy of the program. A "
        "step holds Python's lock, so threads gain nothing; agents run in separate processes, and "
        "nethack_processes measures one agent's games in two.",
    }


def _processes(steps: int, rounds: int) -> dict[str, Any]:
    """Return the rates of DIVIDED games in wall-clock time, divided among processes or not."""
    clock = time.perf_counter
    measures = (
        partial(_at_once, ((_theirs, DIVIDED),)),
        partial(_at_once, ((_theirs, DIVIDED // 2), (_theirs, DIVIDED // 2))),
        partial(_ours, DIVIDED, clock=clock),
        partial(_ours, DIVIDED, processes=2, clock=clock),
    )
    single, double, ours, divided = np.median([[measure(steps) for measure in measures] for _ in range(rounds)], axis=0)
    return {
        "value": [round(divided / single, 2), round(divided / double, 2)],
        "unit": "times the steps/s of NLE's environments in one process, and in two, in wall-clock time: Laurel's with "
        f"processes: 2; {DIVIDED} games",
        "target": ">= 1 in two processes, too",
        "met": bool(divided >= double),
        "peer": "steps/s of NLE's in one process; of NLE's in "
        "two that do not wait for each other, half of the games each; of "
        "Laurel's in one process; of Laurel's in two, where each step waits for all games",
        "peer_value": [round(float(rate)) for rate in (single, double, ours, divided)],
        "why": f"Laurel's games in two processes make {divided / ours:.2f} times the steps of the same games in one. "
        "Each step waits for the slower process, and needs both to be running: other work on the machine, which the "
        "load average shows, makes that wait longer.",
    }


def _at_once(sides: tuple[tuple[Callable[..., float], int], ...], steps: int) -> float:
    """Return the total steps/s of several processes that begin at the same time."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(len(sides)), context.SimpleQueue()
    begun = [context.Process(target=_timed, args=(*side, steps, barrier, answers)) for side in sides]
    for process in begun:
        process.start()
    rates = [answers.get() for _ in begun]
    for process in begun:
        process.join()
    return float(sum(rates))


def _timed(measure: Callable[..., float], games: int, steps: int, barrier: Any, answers: Any) -> None:
    measure(games, 10)  # what is imported and read on the way
    barrier.wait()
    answers.put(measure(games, steps, clock=time.perf_counter))


def _rates(games: int, steps: int, rounds: int) -> Rates:
    """Return the median of rounds of each measure."""
    measures = (
        _theirs, partial(_theirs, observation_keys=OTHERS), partial(_theirs, observation_keys=KEYS), _ours, _unseen,
        _limit, _open,
    )  # fmt: skip
    found = [[measure(games, steps) for measure in measures] for _ in range(rounds)]
    return Rates(*map(float, np.median(found, axis=0)))


def _unseen(games: int, steps: int) -> float:
    games_begun, chosen = _begun(games, steps)
    begun = time.process_time()
    for number, row in enumerate(chosen):
        for game, action in zip(games_begun.games, row, strict=True):
            if game.step(action)[1]:
                game.begin(np.random.default_rng(number))
    rate = games * steps / (time.process_time() - begun)
    games_begun.close()
    return rate


def _begun(games: int, steps: int) -> tuple[Games, list[list[int]]]:
    """Return games that have begun, and actions."""
    begun = Games(games, task="score")
    for number, game in enumerate(begun.games):
        game.begin(np.random.default_rng(number))
    return begun, np.random.default_rng(0).integers(0, N_ACTIONS, (steps, games)).tolist()


def _limit(games: int, steps: int) -> float:
    """Step the compiled game with the keys that `_unseen` uses, with resets, and nothing else."""
    first_games, chosen = _begun(games, steps)
    pressed = [_listen(game) for game in first_games.games]
    turns: list[tuple[Game, list[int | tuple[int, int]]]] = []
    for number, row in enumerate(chosen):
        for game, action, keys in zip(first_games.games, row, pressed, strict=True):
            keys.clear()
            if game.step(action)[1]:
                game.begin(np.random.default_rng(number))
            turns.append((game, [*keys]))
    first_games.close()
    second_games, _ = _begun(games, steps)
    steps_of = {old: new.raw._pynethack.step for old, new in zip(first_games.games, second_games.games, strict=True)}
    raws = {old: new.raw for old, new in zip(first_games.games, second_games.games, strict=True)}
    presses = [(steps_of[game], raws[game], keys) for game, keys in turns]
    begun = time.process_time()
    for press, raw, keys in presses:
        for key in keys:
            if isinstance(key, int):
                press(key)
            else:
                raw.set_initial_seeds(*key, reseed=False)
                raw.reset()
    rate = games * steps / (time.process_time() - begun)
    second_games.close()
    return rate


def _listen(game: Game) -> list[int | tuple[int, int]]:
    """Return a list to which the keys that are pressed from now on are added, and the seeds of new games."""
    keys: list[int | tuple[int, int]] = []
    play, start = game._play, game.start

    def press(key: int) -> None:
        keys.append(key)
        play(key)

    def begin(core: int, disp: int) -> bool:
        keys.append((core, disp))
        return start(core, disp)

    game._play, game.start = press, begin  # type: ignore[method-assign]
    return keys


def _ours(games: int, steps: int, *, processes: int = 1, clock: Clock = time.process_time) -> float:
    envs = gym.make_vec(
        "laurel/NetHack-v0", num_envs=games, vectorization_mode="vector_entry_point", processes=processes
    )
    envs.reset(seed=0)
    chosen = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, games))
    begun = clock()
    for action in chosen:
        envs.step(action)
    rate = chosen.size / (clock() - begun)
    envs.close()
    return rate


def _open(games: int, steps: int) -> float:
    """Step with keys alone and full observations, without reading the screen, so that prompts stay open."""
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


def _theirs(games: int, steps: int, *, clock: Clock = time.process_time, **shown: Any) -> float:
    from nle.env.tasks import NetHackScore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        envs = [NetHackScore(fix_moon_phase=True, **shown) for _ in range(games)]
    for env in envs:
        env.reset()
    chosen = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, games))
    begun = clock()
    for row in chosen.tolist():
        for env, action in zip(envs, row, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
    rate = chosen.size / (clock() - begun)
    for env in envs:
        env.close()
    return rate


def _differences(seed: int, steps: int) -> int:
    """Return how many of a game's steps differ between the two."""
    from nle.env.tasks import NetHackScore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = NetHackScore(max_episode_steps=10**9, fix_moon_phase=True, observation_keys=OTHERS)
    games = Games(1, task="score")
    chosen = np.random.default_rng(seed).integers(0, N_ACTIONS, steps).tolist()
    episode = different = 0

    def begin() -> None:
        core, disp = (int(part) for part in np.random.default_rng([seed, episode]).integers(2**62, size=2))
        theirs.seed(core, disp, reseed=False)
        theirs.reset()
        games.games[0].begin(np.random.default_rng([seed, episode]))

    begin()
    for action in chosen:
        seen, reward, ended, *_ = theirs.step(action)
        own_reward, own_end = games.games[0].step(action)
        row, begins = games.observe()[0], games.crop**2
        equal = (
            (row[-MESSAGE:] == seen["message"]).all()
            and (row[begins : begins + STATUS] == seen["blstats"]).all()
            and (games._seen["glyphs"][0] == seen["glyphs"]).all()  # an observation shows those around the player
        )
        different += not (equal and abs(reward - own_reward) < 1e-9 and ended == own_end)
        if ended or own_end:
            episode += 1
            begin()
    theirs.close()
    games.close()
    return different


if __name__ == "__main__":
    main()
