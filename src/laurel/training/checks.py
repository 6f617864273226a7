"""Which arms and algorithms can be trained in an environment, which is asked before anything is collected or paid for.

Goes by spaces alone where it can, and then imports no torch.
"""

from __future__ import annotations

from laurel.agents.algorithms import algorithm_of
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.params import Params
from laurel.params.training import AgentParams
from laurel.rewards.arms import skipped_arms, trained_arms


def check_agents(params: Params, adapter: EnvAdapter) -> None:
    """Refuse agents that training would refuse; where no arm is trained, there are none.

    Raises:
        ParamsError: no arm can be trained or evaluated, or what Stable-Baselines3 is to do cannot be.
        EnvError: an algorithm does not fit the environment's observations or actions.
        LaurelError: a method of the rewards lacks something.
    """
    skipped = skipped_arms(params, adapter)
    if len(skipped) == len(params.arms):
        raise ParamsError(f"arms: no arm is left. {' '.join(skipped.values())}")
    checked: list[AgentParams] = []
    for arm in trained_arms(params, adapter):
        own = params.for_arm(arm)
        if own.agent not in checked:
            checked.append(own.agent)
            _check_algorithm(own, adapter)


def _check_algorithm(params: Params, adapter: EnvAdapter) -> None:
    """Check the algorithm of an arm, whose parameters these are."""
    if params.agent.engine == "sb3":
        from laurel.training.untrained import untrained

        untrained(params, adapter, params.agent.seeds[0])  # only that tells whether it can be made; imports torch
        return
    algorithm_of(params.agent.settings).check(params.agent.settings, adapter)
