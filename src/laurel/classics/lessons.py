"""`laurel classics bandits` and `tabular`: every agent on textbook tasks; figures and tables of the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib.figure import Figure

from laurel.agents.agent import Agent
from laurel.agents.bandits import UCB, BernoulliThompson, Cheater, GaussianThompson, Gradient, Random, RewardAveraging
from laurel.agents.tabular import (
    ExpectedSarsa,
    MonteCarlo,
    NStepSarsa,
    OffPolicyMonteCarlo,
    QLearning,
    Sarsa,
    TabularAgent,
    TreeBackup,
    planning,
)
from laurel.arrays import DoubleArray
from laurel.classics.running import run_agent, run_episodes
from laurel.data.written import written_whole
from laurel.envs.builtin import ARMED_BANDIT, GRID_WORLD
from laurel.envs.builtin.model import model_of
from laurel.envs.builtin.simulator import Simulator
from laurel.evaluation.formats import markdown
from laurel.evaluation.reward_curves import draw_rewards, mean_over_runs
from laurel.evaluation.style import MUTED, drawing, settings

ARMS = 10
LAST = 100
"""Steps or episodes at the end of a run over which a table's means are taken."""


@dataclass(frozen=True, slots=True)
class Testbed:
    """Bandits that agents are compared on."""

    title: str
    arms: Mapping[str, Any]
    """Arguments of the bandit besides the number of arms."""
    steps: int


TESTBEDS = (
    Testbed("Gaussian arms", {}, 1000),
    Testbed("Bernoulli arms", {"rewards": "bernoulli"}, 1000),
    Testbed("Drifting arms", {"spread": 0.0, "drift": 0.02}, 2000),  # Sutton & Barto, ex. 2.5, twice the drift
)


@dataclass(frozen=True, slots=True)
class World:
    """An environment in which tabular agents are compared, and how."""

    env_id: str
    title: str
    limit: int
    episodes: int
    gamma: float
    floor: float
    """Lowest return that is drawn; early episodes lie far below."""
    step_size: float


WORLDS = (
    World("CliffWalking-v1", "Cliff walking", limit=500, episodes=300, gamma=1.0, floor=-150.0, step_size=0.5),
    World(GRID_WORLD, "Russell & Norvig's grid world", limit=100, episodes=500, gamma=0.99, floor=-2.0, step_size=0.1),
)


def show_bandits(output: Path, *, n_runs: int, seed: int) -> str:
    """Run the bandit agents on ten arms of each kind; write `bandits.png` and return a table of each."""
    tables = []
    with drawing(11.5, 9.9) as figure:
        for panels, bed in zip(figure.subplots(len(TESTBEDS), 3), TESTBEDS, strict=True):
            env = gym.make(ARMED_BANDIT, max_episode_steps=bed.steps, n_arms=ARMS, **bed.arms)
            agents = _bandit_agents(bed)
            steps = [run_agent(env, agent, n_runs, seed) for agent in agents.values()]
            reward = np.array([run.rewards for run in steps])
            optimal = np.array([run.optimal for run in steps])
            regret = np.array([run.regret for run in steps]).cumsum(axis=2)
            names, window = list(agents), 15 * bed.steps // 1000
            draw_rewards(panels[0], reward, names, window, title=f"{bed.title}: reward", legend=False)
            draw_rewards(panels[1], optimal, names, window, title="Pulls of the best arm", legend=False)
            draw_rewards(panels[2], regret, names, None, title="Regret so far")
            columns = (
                (reward[..., -LAST:].mean(axis=2), ".2f"),
                (optimal[..., -LAST:].mean(axis=2), ".1%"),
                (regret[..., -1], ".0f"),
            )
            rows = [(name, *(estimated(values[i], form) for values, form in columns)) for i, name in enumerate(names)]
            tables.append(markdown((bed.title, f"reward, last {LAST}", f"best arm, last {LAST}", "regret"), rows))
        save(figure, output / "bandits.png")
    return "\n\n".join(tables)


def show_tabular(output: Path, *, n_runs: int, seed: int) -> str:
    """Run the tabular agents in environments whose optimal policy is known; write `tabular.png` and return a table."""
    tables = []
    with drawing(11.5, 3.8) as figure:
        for axes, world in zip(figure.subplots(1, len(WORLDS)), WORLDS, strict=True):
            last = world is WORLDS[-1]  # the panel that has every agent
            model = model_of(gym.make(world.env_id))
            spaces = gym.spaces.Discrete(model.n_states), gym.spaces.Discrete(model.n_actions)
            agents = _tabular_agents(world, spaces)
            envs = Simulator(model, n_runs, world.limit)
            returns = np.array(
                [
                    run_episodes(envs, agent, n_runs, seed, n_episodes=world.episodes).returns
                    for agent in agents.values()
                ]
            )
            best = float(model.start @ planning.value_iteration(model, 1.0)[1])
            draw_rewards(axes, returns, list(agents), 15, title=f"{world.title}: return", xlabel="episode", legend=last)
            axes.axhline(best, color=MUTED, lw=1.0, ls=(0, (3, 2)))
            axes.annotate(
                "best policy", (world.episodes, best), (-4, 3), textcoords="offset points", ha="right", size=8
            )
            axes.set_ylim(world.floor, best + 0.08 * (best - world.floor))
            rows = [
                (name, estimated(of_agent[:, -LAST:].mean(axis=1), ".2f"))
                for name, of_agent in zip(agents, returns, strict=True)
            ]
            rows.append(("best policy, exactly", f"{best:z.2f}"))
            tables.append(markdown((world.title, f"return, last {LAST} episodes"), rows))
        save(figure, output / "tabular.png")
    return "\n\n".join(tables)


def _bandit_agents(bed: Testbed) -> Mapping[str, Agent]:
    coins = bed.arms.get("rewards") == "bernoulli"
    agents: dict[str, Agent] = {
        "cheater": Cheater(),
        "Thompson": BernoulliThompson(ARMS) if coins else GaussianThompson(ARMS),
        "UCB": UCB(ARMS, c=0.5 if coins else 2.0),
        "gradient": Gradient(ARMS, step_size=0.4 if coins else 0.1),
    }
    if "drift" in bed.arms:
        agents["ε-greedy, constant step"] = RewardAveraging(ARMS, epsilon=0.1, step_size=0.1)
    else:
        agents["optimistic"] = RewardAveraging(ARMS, epsilon=0.0, optimism=2.0 if coins else 5.0, step_size=0.1)
    return agents | {
        "ε-greedy": RewardAveraging(ARMS, epsilon=0.1),
        "greedy": RewardAveraging(ARMS, epsilon=0.0),
        "random": Random(ARMS),
    }


def _tabular_agents(world: World, spaces: tuple[gym.spaces.Discrete, gym.spaces.Discrete]) -> dict[str, TabularAgent]:
    common: dict[str, Any] = {"gamma": world.gamma, "epsilon": 0.1}
    step = {**common, "step_size": world.step_size}
    agents: dict[str, TabularAgent] = {
        "expected SARSA": ExpectedSarsa(*spaces, **step),
        "SARSA": Sarsa(*spaces, **step),
        "Q-learning": QLearning(*spaces, **step),
        "4-step SARSA": NStepSarsa(*spaces, n=4, **step),
        "4-step tree backup": TreeBackup(*spaces, n=4, **step),
    }
    if world.env_id == GRID_WORLD:  # on the cliff, few of their episodes would end before the limit
        agents["Monte Carlo"] = MonteCarlo(*spaces, **common)
        agents["off-policy Monte Carlo"] = OffPolicyMonteCarlo(*spaces, **common)
    return agents


def estimated(values: DoubleArray, form: str) -> str:
    """Write the mean of values (runs,) with half of its 95% interval.

    >>> estimated(np.array([-0.002, 0.0]), ".2f")
    '0.00 ± 0.01'
    """
    estimate = mean_over_runs(values)
    text = f"{estimate.mean:z{form}}"  # z: not -0.00
    return text if estimate.interval is None else f"{text} ± {estimate.interval[1] - estimate.mean:z{form}}"


def save(figure: Figure, path: Path) -> None:
    """Save a figure, whole or not at all, in the format that all figures of the classics share.

    Raises:
        DataError: it cannot be written.
    """
    with settings(), written_whole(path) as partial:
        figure.savefig(partial, dpi=150, facecolor="white")
