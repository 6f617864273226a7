"""Rewards actions that a language model would choose: log-likelihood of the action, relative to a uniform choice.

    r = log h(a|s) + log K,   h the probabilities of K actions according to an actor, by default `llm_policy`

It is positive if the action is more likely than chance, and only positive values are used. With `shaping.form: bonus`
it is a bonus. With `potential` it is look-back advice (Wiewiora, Cottrell and Elkan 2003): a potential of the last
state and action, which does not change which policies are optimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, JsonValue

from laurel.agents.actor import Advisor, View, initial_observations
from laurel.agents.actors import judge_asked
from laurel.agents.hints import Shuffled, make_advisor
from laurel.arrays import FloatArray
from laurel.data.json_file import read_json, write_json
from laurel.envs.base import EnvAdapter
from laurel.params.annotation import AnnotateParams, BudgetParams
from laurel.params.rewards import RewardParams
from laurel.rewards.base import UNPAID, Memoryless, Reward, Steps
from laurel.rewards.method import Collected, Inputs, Method, RewardContext

CONFIG = "config.json"
SHUFFLED = "shuffled"
"""Seed of the control's shuffling, in CONFIG."""


class LanguageModelHintsParams(RewardParams):
    """The settings, `rewards.llm_hints`."""

    kind: str = "llm_hints"
    """The method that makes the reward."""
    actor: str = "llm_policy"
    """Kind of the actor; it must provide the probability of each discrete action."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the actor, e.g. {judge: player}."""


class LikelyActions(Memoryless):
    """Rewards steps by an advisor's probabilities; each distinct state is asked about once.

    Args:
        with_budget: makes the same advisor with another budget; None: the advisor has no budget.
    """

    threshold = 0.0

    def __init__(
        self, advisor: Advisor, adapter: EnvAdapter, with_budget: Callable[[BudgetParams], Advisor] | None = None
    ) -> None:
        self._advisor, self._adapter, self._within = advisor, adapter, with_budget

    def limit(self, budget: BudgetParams) -> None:
        if self._within is not None:
            self._advisor = self._within(budget)

    def when_answered(self, call: Callable[[], None]) -> None:
        self._advisor.when_answered(call)

    @property
    def account(self) -> Mapping[str, Any]:
        return self._advisor.account

    def pay(self, steps: Steps) -> FloatArray:
        valid = steps.valid.reshape(-1)
        paid = np.full(valid.shape, UNPAID)
        rows = steps.transitions[valid]
        if len(rows):
            view = View(self._adapter, rows.observation)
            paid[valid] = self._advisor.log_prob(view, rows.action) + math.log(self._advisor.n_actions)
        return paid.reshape(steps.valid.shape)


class LanguageModelHints(Method[LanguageModelHintsParams]):
    """Fits nothing; the artefact names the actor."""

    kind = "llm_hints"
    summary = "a bonus for doing what a language model would do"
    Settings = LanguageModelHintsParams

    def asked_in_training(self) -> str | None:
        return judge_asked(self.settings.actor, self.settings.options)

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        """Refuse an actor that cannot be asked here."""
        self._advisor(adapter, context.annotate, context.key(self.settings))
        return None

    def estimate(self, context: RewardContext, collected: Collected | None, adapter: EnvAdapter) -> str | None:
        """Estimate the cost per state from initial states of episodes."""
        advisor = self._advisor(adapter, context.annotate, context.key(self.settings))
        asked = advisor.estimate(initial_observations(context.env, adapter))
        return f"{asked}; while agents are trained and evaluated" if asked else asked  # its stage would be train-reward

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        write_json(place / CONFIG, _config(context))

    def check_shuffled(self, name: str, context: RewardContext, adapter: EnvAdapter) -> str | None:
        """The control permutes the model's probabilities over the actions in each state."""
        return self.check(context, adapter)

    def fit_shuffled(self, context: RewardContext, inputs: Inputs, made: Path, seed: int, place: Path) -> None:
        write_json(place / CONFIG, {**_config(context), SHUFFLED: seed})

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        content: Any = read_json(place / CONFIG)
        annotate = AnnotateParams.model_validate(content["annotate"])

        def within(budget: BudgetParams) -> Advisor:
            limited = annotate.model_copy(update={"budget": budget})
            advisor = self._advisor(adapter, limited, "rewards of kind llm_hints")
            return Shuffled(advisor, content[SHUFFLED]) if SHUFFLED in content else advisor

        return LikelyActions(within(annotate.budget), adapter, within)

    def _advisor(self, adapter: EnvAdapter, annotate: AnnotateParams, key: str) -> Advisor:
        settings = self.settings
        return make_advisor(settings.actor, settings.options, adapter, annotate, key)


def _config(context: RewardContext) -> dict[str, Any]:
    return {"annotate": context.annotate.model_dump(mode="json")}


METHOD = LanguageModelHints
