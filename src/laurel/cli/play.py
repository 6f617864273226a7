"""`laurel play`: watch a trained agent, with its captions and rewards."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.cli.command import Commands, add_command, add_params, log_warnings, number, whole
from laurel.console import say, tell
from laurel.errors import DataError, ParamsError, closest
from laurel.stages.pipeline import PLACES

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.evaluation.rollout import LearnedReward
    from laurel.params import Params
    from laurel.params.resolved_arms import Arm

AGENTS, REWARD = Path(PLACES["agents"]), Path(PLACES["reward"])
CAPTIONS, PREFERENCES = Path(PLACES["captions"]), Path(PLACES["preferences"])
FILM = Path("play.gif")


@dataclass(frozen=True)
class Player:
    """The actor that plays."""

    place: Path | None
    """Directory of a trained agent; None for uniform actions."""
    name: str
    kind: str | None = None
    """Kind of an actor that is not trained."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the actor is made with."""
    arm: str | None = None
    """The agent's arm; None if unknown."""
    seed: int | None = None
    """The agent's seed; None if unknown."""


def add(commands: Commands) -> None:
    """Add the command."""
    play = add_command(
        commands,
        "play",
        "Watch a trained agent: in the terminal, in a window, or as a GIF.",
        "laurel play\n  laurel play extrinsic 3 --as gif -o play.gif",
    )
    play.add_argument(
        "agent",
        nargs="?",
        metavar="AGENT",
        help="an arm, an agent's directory, or an actor such as llm_policy; default: the first trained method",
    )
    play.add_argument(
        "which", nargs="?", type=whole(0), metavar="SEED", help="the arm's seed; default: the first of agent.seeds"
    )
    add_params(play)
    play.add_argument(
        "--agents", type=Path, default=AGENTS, metavar="DIR", help=f"folder of the arms; default: {AGENTS}"
    )
    play.add_argument(
        "--reward",
        type=Path,
        metavar="DIR",
        help=f"output of train-reward with the reward to show; default: {REWARD}, if it exists",
    )
    play.add_argument(
        "--as", dest="form", choices=["terminal", "window", "gif"], help="default: terminal, or gif with -o"
    )
    play.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"a .gif or .webp to write; default: {FILM}")
    play.add_argument("--episodes", type=whole(), default=1, metavar="N", help="default: 1")
    play.add_argument(
        "--steps", type=whole(), default=500, metavar="N", help="maximum steps of an episode; default: 500"
    )
    play.add_argument("--seed", type=whole(0), metavar="N", help="seed of the episodes; default: that of the params")
    play.add_argument(
        "--greedy",
        action=argparse.BooleanOptionalAction,
        help="take the likeliest action instead of sampling; default: evaluate.greedy",
    )
    play.add_argument(
        "--fps", type=number(0.01, 100), metavar="N", help="steps per second; default: the environment's, at most 10"
    )
    play.set_defaults(run=_run, again="Nothing was written but stored answers of language models.")


def _run(options: argparse.Namespace) -> int:
    import torch

    from laurel.agents.actors import make_actor
    from laurel.envs import adapter_for
    from laurel.evaluation.formats import counted
    from laurel.evaluation.performance import Performance, film, show_in_terminal, show_in_window
    from laurel.params import load_params
    from laurel.seeding import derive_seed

    form = options.form or ("gif" if options.output else "terminal")
    output = _checked_output(form, options.output)
    log_warnings()
    torch.set_num_threads(1)  # for one environment, threads only slow each other down
    params = load_params(options.params)
    player = _player(params, options.agent, options.which, options.agents)
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    greedy = params.evaluate.greedy if options.greedy is None else options.greedy
    performance = Performance(
        params.env,
        adapter,
        player.name,
        make_actor(player.kind, adapter, "AGENT", annotate=params.annotate, likeliest=greedy, **player.options)
        if player.kind
        else make_actor("checkpoint", adapter, "AGENT", path=player.place, greedy=greedy, annotate=params.annotate),
        _learned_reward(params, player, options.reward, options.agents, adapter),
        options.episodes,
        options.steps,
        derive_seed(params.seed if options.seed is None else options.seed, "play"),
        options.fps,
    )
    if form == "terminal":
        return show_in_terminal(performance, say, tell)
    if form == "window":
        show_in_window(performance)
        return 0
    return say(f"{counted(film(performance, output), 'step')} in {output}\n")


def _checked_output(form: str, output: Path | None) -> Path:
    from laurel.data.ownership import check_outside_outputs
    from laurel.evaluation.film import SUFFIXES

    if form != "gif":
        if output is not None:
            raise ParamsError(f"--output {output} needs --as gif, not --as {form}.")
        return FILM
    path = output or FILM
    if path.suffix.lower() not in SUFFIXES:
        raise ParamsError(f"--output {path}: must end in one of {', '.join(SUFFIXES)}, which names its format.")
    check_outside_outputs(path)
    if not path.parent.is_dir():
        raise DataError(f"{path}: cannot be written, there is no directory {path.parent}. Make it, or choose another.")
    return path


def _player(params: Params, agent: str | None, seed: int | None, agents: Path) -> Player:
    """Return the agent that the options name.

    Raises:
        ParamsError: what was named is neither an arm nor a directory.
        DataError: the arm has no such agent.
    """
    from laurel.params.arms import RANDOM, WELL_KNOWN, arm_of
    from laurel.params.kinds import ACTORS, replays_agent
    from laurel.seeding import seed_folder

    if agent is None:
        trained = [arm for arm in params.resolved_arms.values() if (agents / arm.name).is_dir()]
        if not trained:
            untrained = next(name for name in WELL_KNOWN if not arm_of(name).trained)
            raise DataError(
                f"{agents}: holds no agents. Run laurel train-agents first, or name an agent's directory, or watch "
                f"laurel play {untrained}."
            )
        agent = next((arm for arm in trained if arm.role == "method"), trained[0]).name
    arms = {**{name: arm_of(name) for name in WELL_KNOWN}, **{arm.name: arm for arm in params.arms}}
    if agent not in arms:
        if not Path(agent).is_dir() and agent in ACTORS.kinds() and not replays_agent(agent):
            return Player(None, agent, agent)
        if not Path(agent).is_dir():
            names = [arm.name for arm in params.arms]
            raise ParamsError(
                f'"{agent}" is neither a directory, nor an arm ({", ".join(names)}), nor an actor such as {RANDOM}.'
                + closest(agent, (*names, *ACTORS.kinds()))
            )
        if seed is not None:
            raise ParamsError(f"{agent} is an agent's directory, so leave out the seed ({seed}).")
        return Player(Path(agent), agent)
    if not arms[agent].trained:
        if seed is not None:
            raise ParamsError(
                f"{agent} has no trained agents, so leave out the seed ({seed}). For its episodes: --seed N"
            )
        return Player(None, agent.replace("_", " "), arms[agent].actor, arms[agent].actor_options)
    number = params.agent.seeds[0] if seed is None else seed
    place = agents / agent / seed_folder(number)
    if not place.is_dir():
        seeds = sorted((path.name for path in (agents / agent).glob("seed-*")), key=lambda name: (len(name), name))
        if not seeds:
            raise DataError(f"{place}: no such agent; {agents} holds no agent of {agent}. Run laurel train-agents.")
        raise DataError(f"{place}: no such agent; name one of {', '.join(seeds)}, or run laurel train-agents.")
    return Player(place, f"{agent}, seed {number}", arm=agent, seed=number)


def _learned_reward(
    params: Params, player: Player, place: Path | None, agents: Path, adapter: EnvAdapter
) -> LearnedReward | None:
    """Return the reward that is shown: that of the agent's arm, if it has one, or else that of the first method."""
    from laurel.data.lineage import read_inputs
    from laurel.evaluation.play import is_paid_from, watched_arm, watching
    from laurel.rewards.method import Inputs, RewardContext

    if place is None and not REWARD.is_dir():
        tell(f"laurel: no learned reward is shown: {REWARD} does not exist.")
        return None
    read_inputs(params.dump("env"), {"reward": place or REWARD})
    arms = params.resolved_arms
    arm = arms.get(player.arm or "")
    if arm is not None and is_paid_from(arm, place or REWARD):
        watched: Arm | None = arm
    else:
        watched = watched_arm(arms.values(), place or REWARD)
    sources = Inputs(CAPTIONS, PREFERENCES, place or REWARD, agents=agents)
    seed = player.seed if watched and watched.name == player.arm else None
    watched_reward = watching(watched, RewardContext.of(params), adapter, sources, seed)
    if watched_reward is None:
        tell(f"laurel: no learned reward is shown: none of the method arms has one in {place or REWARD}.")
    return watched_reward
