"""Pays an episode at its end, by the answer to a yes/no question: did it reach the goal?

After Kwon et al. 2023, "Reward Design with Language Models" (arXiv 2303.00001). An episode's outcome is what its last
captions say. Each distinct outcome that collection met, or that the environment lists, is asked about once, after
examples if there are any; the answers are a table, by which agents are paid.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from pydantic import Field

from laurel.params.fields import Count, Section
from laurel.params.rewards import RewardParams
from laurel.rewards.method import QUALITY, Inputs, Method, PayTable

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.params import Params
    from laurel.rewards.base import Reward

Judge = Literal["annotator", "supervised", "truth"]


class ExampleParams(Section):
    """An outcome whose answer is known."""

    episode: str
    """What happened, in the words of the captions."""
    reached: bool
    """Whether that is the goal."""
    why: str = ""
    """In a sentence, for the language model."""


class OutcomeParams(RewardParams):
    """Settings of outcome."""

    judge: Judge = "annotator"
    """annotator: that of `annotate`; supervised: a classifier of the outcomes' embeddings, learned from `labels` alone;
    truth: the environment's own success, as an upper bound."""
    captions: Count = 1
    """The last ones of an episode, which are its outcome."""
    prompt: str = "yes_no"
    """Of a chat model; one of `laurel prompt list`, or a .jinja file of your own."""
    goal: str | None = None
    """What a chat model is asked about; null: the environment's own goal."""
    examples: Annotated[tuple[ExampleParams, ...], Field(strict=False)] = ()
    """Shown to a chat model before the outcome, in this order."""
    labels: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Outcomes whose true answer is given, drawn at random: further examples for a chat model, all that supervised
    knows. They are left out of the accuracy."""


class Outcome(Method):
    """Keeps a probability of success for each outcome."""

    kind = "outcome"
    summary = "at an episode's end, whether its outcome is the goal by the annotator"
    Settings = OutcomeParams
    reads = ("trajectories", "captions")

    def check(self, settings: RewardParams, params: Params, adapter: EnvAdapter) -> str | None:
        from laurel.rewards.outcomes import judge_of

        own = cast(OutcomeParams, settings)
        return judge_of(own, params, adapter).check()

    def fit(
        self, settings: RewardParams, params: Params, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path
    ) -> None:
        from laurel.data.directory import write_json
        from laurel.rewards.outcomes import answered, collected_outcomes

        assert inputs.trajectories is not None
        own = cast(OutcomeParams, settings)
        outcomes = collected_outcomes(inputs.trajectories, inputs.captions, adapter, own.captions)
        table, quality = answered(outcomes, own, params, adapter)
        table.save(place)
        write_json(place / QUALITY, quality)

    def load(self, settings: RewardParams, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        from laurel.rewards.outcomes import OutcomeReward, OutcomeTable

        return OutcomeReward(OutcomeTable.load(place).answers, cast(OutcomeParams, settings).captions)

    def table(self, settings: RewardParams, place: Path, quantile: float) -> PayTable:
        import numpy as np

        from laurel.rewards.outcomes import OutcomeTable

        found = OutcomeTable.load(place)
        values = np.array([found.answers[text] for text in found.answers], dtype=np.float32)
        return PayTable(list(found.answers), values, np.zeros_like(values), np.array(found.counts), 0.0)


METHOD = Outcome
