"""checkpoint: an agent that Laurel trained, by its own algorithms or by Stable-Baselines3."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from laurel.agents.actor import Actor, actor_kind
from laurel.agents.actors.random import UniformPolicy
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.params.annotation import AnnotateParams

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork


@actor_kind(replays_agent=True)
def load_agent(
    adapter: EnvAdapter, path: Path, *, greedy: bool = False, annotate: AnnotateParams | None = None
) -> Actor:
    """Load the agent of a directory.

    Args:
        path: the agent's directory, e.g. data/agents/preference/seed-0.
        greedy: take the likeliest action instead of a sample.
        annotate: the section of the run, for agents that act with a chat model.

    Raises:
        DataError: the agent is missing or damaged, or was trained in another environment.
    """
    from laurel.agents.checkpoint import load_policy  # avoids importing torch if no agent acts

    network = load_policy(path)
    check_fit(path, network, adapter)
    return network.actor_in(adapter, greedy=greedy, annotate=annotate)


ACTOR = load_agent


def check_fit(place: Path, network: PolicyNetwork, adapter: EnvAdapter) -> None:
    """Raise DataError for an agent that was trained on an environment with other observations or actions."""
    n_features = adapter.n_features
    uniform = UniformPolicy(adapter.action_space)
    actions = uniform.action_shape or (int(adapter.action_space.n),)  # type: ignore[attr-defined]
    if (network.n_features, network.continuous, network.n_actions) != (
        n_features,
        bool(uniform.action_shape),
        *actions,
    ):
        raise DataError(
            f"{place}: an agent with {network.n_features} features and {network.n_actions} actions, but "
            f"{adapter.env_id} has {n_features} and {actions[0]} here. An agent fits only observations and actions "
            "like those of its training: compare env.id and env.kwargs of the two."
        )
