"""Initial policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laurel.envs.base import EnvAdapter
from laurel.params import EnvParams
from laurel.params.training import AgentParams

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork


def untrained(run_seed: int, env: EnvParams, agent: AgentParams, adapter: EnvAdapter, seed: int) -> PolicyNetwork:
    """Return the policy that training with a seed begins with, the same for all arms; imports torch.

    Raises:
        ParamsError: Stable-Baselines3's algorithm does not go with its arguments or the action space.
        EnvError: the algorithm does not fit the environment's observations or actions.
    """
    if agent.engine == "sb3":
        from laurel.agents.sb3.model import initial_sb3_policy

        return initial_sb3_policy(
            env, adapter, agent.sb3, run_seed=run_seed, seed=seed, steps=agent.steps, device=agent.device
        )
    from laurel.agents.algorithms import initial_policy

    return initial_policy(adapter, agent.settings, run_seed, seed)
