"""The definition of a search: arm, seeds, steps and parameters, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from laurel.envs import adapter_for
from laurel.errors import ParamsError, closest
from laurel.params import Params
from laurel.params.arms import WELL_KNOWN, arm_of
from laurel.params.rewards import method_of
from laurel.params.search import Space, Sweep, agent_of, examples, read_space, with_values
from laurel.rewards.arms import skipped_arms
from laurel.rewards.method import LearningMethod, RewardContext
from laurel.tuning.objective import REPORTS
from laurel.tuning.study import check_sampler

FIRST_SEED = 1000
"""Seeds of trials begin here, far from the seeds that agents are evaluated with."""
SEEDS = 2


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to search."""

    arm: str | None = None
    """None: the first arm with the role method, otherwise the first trained arm."""
    entries: Sequence[str] = ()
    """The space, as `read_space` takes it."""
    trials: int = 30
    """Trials in all, earlier calls included."""
    seeds: Sequence[int] | None = None
    """None: SEEDS seeds that no agent has."""
    steps: int | None = None
    """Environment steps of a training run; None: agent.steps."""
    sampler: str = "tpe"
    prune: bool = True
    study: str | None = None
    """Name; None takes the arm's."""
    storage: Path = Path("data/studies.db")


def sweep_of(params: Params, search: Search) -> Sweep:
    """Return the search space, checked against the parameters.

    Raises:
        ParamsError: the arm, a seed, or a parameter or value of the space is not allowed.
    """
    allowed = [arm.name for arm in (*map(arm_of, WELL_KNOWN), *params.arms) if arm.trained]
    trained = [found for found in params.resolved_arms.values() if found.trained]
    first = next((found for found in trained if found.role == "method"), trained[0] if trained else None)
    arm = search.arm or (first.name if first else allowed[0])
    if arm not in allowed:
        allowed = list(dict.fromkeys(allowed))
        raise ParamsError(f'--arm is "{arm}", but must be one of {", ".join(allowed)}.{closest(arm, allowed)}')
    narrow_params = narrowed(params, arm, (0,), 1)
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    context = RewardContext.of(narrow_params)
    if skipped := skipped_arms(narrow_params.arms, context, adapter):
        raise ParamsError(f"--arm: {skipped[arm]}")
    if learning := [
        name
        for name in narrow_params.resolved_arms[arm].reward
        if isinstance(method_of(context.rewards[name]), LearningMethod)
    ]:
        raise ParamsError(
            f"--arm: the reward {learning[0]} of the arm {arm} is learned from an online judge, which a "
            "search does not start. Search an arm whose reward is made beforehand, such as preference."
        )
    if narrow_params.resolved_arms[arm].draws_tasks:
        raise ParamsError(
            f"--arm: a curriculum chooses the tasks of the arm {arm} while it is trained, so the learning curves by "
            "which candidates are compared would be over other tasks. Search an arm without a curriculum."
        )
    seeds = tuple(search.seeds) if search.seeds else _own_seeds(params.agent.seeds)
    if len(set(seeds)) < len(seeds):
        raise ParamsError(f"--seeds names {max(seeds, key=seeds.count)} twice; leave out one of them.")
    if shared := [seed for seed in seeds if seed in params.agent.seeds]:
        raise ParamsError(
            f"--seeds names {shared[0]}, which is one of agent.seeds: scores on seeds that choose the parameters are "
            "biased upwards. Name others."
        )
    space = read_space(search.entries, params, arm)
    _check_sb3(space, params, arm, adapter.action_space)
    check_sampler(search.sampler, space, params)
    return Sweep(arm, seeds, search.steps or params.agent.steps, space)


def _check_sb3(space: Space, params: Params, arm: str, action_space: gym.Space[Any]) -> None:
    """Raise ParamsError where Stable-Baselines3 trains the arm and its algorithm does not take the searched values."""
    from laurel.agents.sb3.catalog import check_algorithm

    agent = agent_of(params, arm)
    if agent.engine != "sb3":
        return
    algorithm = "agent.sb3.algorithm"
    if algorithm in space:
        names = [algorithm]  # each trial checks its arguments against the algorithm that it draws
    else:
        check_algorithm(agent.sb3, action_space)
        names = [name for name in space if name.startswith("agent.sb3.")]
    for name in names:
        for value in examples(name, space[name]):
            check_algorithm(agent_of(with_values(params, {name: value}), arm).sb3, action_space)


def _own_seeds(taken: Sequence[int]) -> tuple[int, ...]:
    free = (seed for seed in range(FIRST_SEED, FIRST_SEED + SEEDS + len(taken)) if seed not in taken)
    return tuple(seed for seed, _ in zip(free, range(SEEDS), strict=False))


def narrowed(params: Params, arm: str, seeds: tuple[int, ...], steps: int) -> Params:
    """Return the parameters of a trial: one arm, its own seeds, a checkpoint at each report."""
    agent = {"seeds": seeds, "steps": steps, "checkpoint_steps": max(1, steps // REPORTS)}
    return params.narrowed(arm).model_copy(update={"agent": params.agent.model_copy(update=agent)})
