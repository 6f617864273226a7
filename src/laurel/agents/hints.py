"""Hints: an actor's log-probabilities, added to the outputs of a learner's network while it is trained.

    π'(a|s) = softmax(o(s) + w log h(a|s)),   w from `weight` down to 0 over a `share` of the run

o are the outputs of the network and h the probabilities of the actor. Agents act by π', so π' is the policy that is
improved: its log-probabilities go into the rollout and into the loss. With only those of the network, the ratio of
the new policy to the one that acted would not begin at 1, and the clipped surrogate would correct for what no update
did. What is saved and evaluated is the network without hints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laurel.agents.actor import Advisor, View
from laurel.agents.actors import Checked, make_actor
from laurel.arrays import Array, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.params.algorithms import HintsParams
from laurel.params.annotation import AnnotateParams

KEY = "agent.ppo.hints"


class Hints:
    """The present weight of an advisor's probabilities."""

    def __init__(self, advisor: Advisor, params: HintsParams) -> None:
        self._advisor, self._params = advisor, params
        self.weight = params.weight

    def schedule(self, done: float) -> None:
        """Set the weight for a run of whose updates the share `done` has been made."""
        self.weight = self._params.weight * max(0.0, 1 - done / self._params.share)

    def __call__(self, adapter: EnvAdapter, observation: Array) -> FloatArray | float:
        """Return what is added to outputs (N, A) for packed observations (N, D); asks nothing if the weight is 0."""
        return self.weight * self._advisor.log_probs(View(adapter, observation)) if self.weight else 0.0


def make_advisor(
    kind: str, options: Mapping[str, Any], adapter: EnvAdapter, annotate: AnnotateParams | None, key: str = KEY
) -> Advisor:
    """Make an actor that says how likely actions are; a language model is not loaded before it is asked.

    Args:
        options: that the actor is made with.
        key: the section that names the actor, for messages.

    Raises:
        ParamsError: there is no such actor, or it does not say how likely actions are.
        LaurelError: what the actor itself raises.
    """
    actor = make_actor(kind, adapter, f"{key}.actor", annotate=annotate, **options)
    found = actor.actor if isinstance(actor, Checked) else actor
    if not isinstance(found, Advisor):
        raise ParamsError(
            f"{key}.actor is {kind}, which gives no probabilities of actions: name llm_policy, or an actor that is a "
            "subclass of laurel.agents.actor.Advisor."
        )
    return found
