"""Hints: an actor's log-probabilities, added to the outputs of a learner's network while it is trained.

    π'(a|s) = softmax(o(s) + w log h(a|s)),   w from `weight` down to 0 over a `share` of the run

o are the network's logits and h the actor's probabilities. Agents act by π', so π' is the policy that is optimised: its
log-probabilities go into the rollout and into the loss. With the network's own log-probabilities, the ratio of the new
policy to the behaviour policy would not start at 1, and the clipped surrogate would correct for differences that no
update caused. The network is saved and evaluated without hints.

The control is `shuffled`: the same probabilities assigned to other actions. Uniform probabilities would not be a
control, as adding a constant to all logits does not change a softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents.actor import Actor, Advisor, View
from laurel.agents.actors import Checked, make_actor
from laurel.arrays import Array, BoolArray, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.errors import ActorError, ParamsError
from laurel.params.algorithms import Helper, HintsParams
from laurel.params.annotation import AnnotateParams
from laurel.seeding import generator

KEY = "agent.ppo.hints"


class Hints:
    """An advisor's log-probabilities with their current weight.

    Args:
        seed: of the agent's own shuffling, if the params request it.
    """

    def __init__(self, advisor: Advisor, params: HintsParams, seed: int = 0) -> None:
        self._advisor, self._params = Shuffled(advisor, seed) if params.shuffled else advisor, params
        self.shuffled = params.shuffled
        self.weight = params.weight

    def schedule(self, done: float) -> None:
        """Set the weight after a fraction `done` of the run's updates."""
        self.weight = self._params.weight * max(0.0, 1 - done / self._params.share)

    def __call__(self, adapter: EnvAdapter, observation: Array, acting: BoolArray | None = None) -> FloatArray | float:
        """Return the term added to logits (N, A) for packed observations (N, D); asks nothing if the weight is 0.

        Args:
            acting: as in `View`.
        """
        return self.weight * self._advisor.log_probs(View(adapter, observation, acting)) if self.weight else 0.0


class Shuffled(Advisor):
    """Another advisor's probabilities, permuted over the actions; each distinct state has its own fixed permutation.

    Args:
        seed: determines all permutations.
    """

    def __init__(self, advisor: Advisor, seed: int) -> None:
        super().__init__(advisor.n_actions, advisor._start)
        self._advisor, self._seed = advisor, seed

    def advise(self, view: View) -> FloatArray:
        log_probs = self._advisor.log_probs(view)
        orders = [generator(self._seed, row.tobytes().hex()).permutation(self.n_actions) for row in view.packed]
        return np.take_along_axis(log_probs, np.stack(orders), axis=1)

    @property
    def account(self) -> Mapping[str, Any]:
        return self._advisor.account

    def when_answered(self, call: Callable[[], None]) -> None:
        self._advisor.when_answered(call)

    def estimate(self, view: View) -> str | None:
        return self._advisor.estimate(view)


def hints_of(hints: Sequence[Hints], adapter: EnvAdapter, observation: Array, acting: BoolArray) -> FloatArray | float:
    """Return the term added to the logits (S N, A) of S agents with equal settings.

    Args:
        observation: (S N, D) packed, one agent's after the other's.
        acting: (S N,), as in `View`.
    """
    if not hints[0].shuffled or not hints[0].weight:
        return hints[0](adapter, observation, acting)
    parts = zip(hints, np.split(observation, len(hints)), np.split(acting, len(hints)), strict=True)
    return np.concatenate([hint(adapter, part, mask) for hint, part, mask in parts])


def make_helper(helper: Helper, adapter: EnvAdapter, annotate: AnnotateParams | None) -> Actor:
    """Make the actor that helps an algorithm, by hints or subgoals; errors as in `make_advisor`."""
    if helper.what == "hints":
        return make_advisor(helper.actor, helper.options, adapter, annotate, helper.key)
    return make_actor(helper.actor, adapter, helper.key, annotate=annotate, **helper.options)


def make_advisor(
    kind: str, options: Mapping[str, Any], adapter: EnvAdapter, annotate: AnnotateParams | None, key: str = KEY
) -> Advisor:
    """Make an actor that provides action probabilities; a language model is loaded on first use.

    Args:
        options: the actor's arguments.
        key: the section that names the actor, for messages.

    Raises:
        ParamsError: there is no such actor, or it does not provide action probabilities.
        LaurelError: raised by the actor itself.
    """
    actor = make_actor(kind, adapter, f"{key}.actor", annotate=annotate, **options)
    advisor = actor.actor if isinstance(actor, Checked) else actor
    if not isinstance(advisor, Advisor):
        raise ParamsError(
            f"{key}.actor is {kind}, which gives no probabilities of actions: name llm_policy, or an actor that is a "
            "subclass of laurel.agents.actor.Advisor."
        )
    space = adapter.action_space
    if isinstance(space, gym.spaces.Discrete) and advisor.n_actions != space.n:
        raise ActorError(f'The actor "{kind}" gives hints for {advisor.n_actions} actions, but {space} has {space.n}.')
    return advisor
