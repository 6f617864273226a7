"""Which arms and algorithms can be trained in an environment, which is asked before anything is collected or paid for.

Goes by spaces alone where it can, and then imports no torch. Knows nothing about how an algorithm learns.
"""

from __future__ import annotations

from laurel.agents.actions import action_form, discrete_actions
from laurel.agents.tabular.states import table_form
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.params import Params
from laurel.params.algorithms import BanditParams, DQNParams, TabularParams
from laurel.params.training import PPOParams


def needs_training(arm: str) -> bool:
    """Whether an arm has agents at all."""
    return arm != "random_policy"


def skipped_arms(params: Params, adapter: EnvAdapter) -> dict[str, str]:
    """Return arm -> a sentence that says why it cannot be trained here."""
    skipped = {}
    if "oracle" in params.agent.arms and adapter.oracle("") is None:
        skipped["oracle"] = f"The arm oracle was left out: {adapter.env_id} has no hand-written progress."
    if "shuffled_labels" in params.agent.arms and params.reward.input != "caption":
        skipped["shuffled_labels"] = 'The arm shuffled_labels was left out: it needs reward.input "caption".'
    return skipped


def check_agents(params: Params, adapter: EnvAdapter) -> None:
    """Refuse agents that training would refuse; where no arm is trained, there are none.

    Raises:
        ParamsError: no arm can be trained or evaluated, or what Stable-Baselines3 is to do cannot be.
        EnvError: the algorithm does not fit the environment's observations or actions.
    """
    skipped = skipped_arms(params, adapter)
    if len(skipped) == len(params.agent.arms):
        raise ParamsError(f"agent.arms: there is none left. {' '.join(skipped.values())}")
    if any(needs_training(arm) and arm not in skipped for arm in params.agent.arms):
        _check_algorithm(params, adapter)


def _check_algorithm(params: Params, adapter: EnvAdapter) -> None:
    if params.agent.engine == "sb3":
        _make_policy(params, adapter)
        return
    match params.agent.settings:
        case TabularParams():
            table_form(adapter)
        case DQNParams() | BanditParams():
            discrete_actions(adapter.action_space, params.agent.algorithm)
        case PPOParams(network="cnn"):
            _make_policy(params, adapter)
        case _:
            action_form(adapter.action_space)


def _make_policy(params: Params, adapter: EnvAdapter) -> None:
    """Make what training would begin with, where only that tells whether it can be made; imports torch."""
    from laurel.training.untrained import untrained

    untrained(params, adapter, params.agent.seeds[0])
