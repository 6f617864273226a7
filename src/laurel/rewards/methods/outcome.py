"""Pays an episode at its end, by the answer to a yes/no question: did it reach the goal?

After Kwon et al. 2023, "Reward Design with Language Models" (arXiv 2303.00001). An episode's outcome is what its last
captions say. Each distinct outcome that collection met, or that the environment lists, is asked about once, after
examples if there are any; agents are paid by the table of answers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from laurel.data.json_file import write_json
from laurel.envs.base import EnvAdapter
from laurel.params.rewards import OutcomeParams
from laurel.rewards.base import Reward
from laurel.rewards.method import QUALITY, Inputs, Method, PayTable, RewardContext


class Outcome(Method[OutcomeParams]):
    """Keeps a probability of success for each outcome."""

    kind = "outcome"
    summary = "at an episode's end, whether its outcome is the goal by the annotator"
    Settings = OutcomeParams
    asks = True
    reads = ("trajectories", "captions")

    def check(self, params: RewardContext, adapter: EnvAdapter) -> str | None:
        from laurel.rewards.outcomes import judge_of

        return judge_of(self.settings, params, adapter).check()

    def estimate(self, params: RewardContext, adapter: EnvAdapter, captions: Path) -> str | None:
        from laurel.data.captions import read_vocabulary
        from laurel.rewards.outcomes import judge_of

        own = self.settings
        return judge_of(own, params, adapter).estimate(read_vocabulary(captions).texts if own.captions == 1 else None)

    def fit(self, params: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.rewards.outcomes import answered, collected_outcomes

        assert inputs.trajectories is not None
        own = self.settings
        outcomes = collected_outcomes(inputs.trajectories, inputs.captions, adapter, own.captions)
        table, quality = answered(outcomes, own, params, adapter, seed)
        table.save(place)
        write_json(place / QUALITY, quality)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        from laurel.rewards.outcomes import OutcomeReward, OutcomeTable

        return OutcomeReward(OutcomeTable.load(place).answers, self.settings.captions)

    def table(self, place: Path, quantile: float) -> PayTable:
        from laurel.rewards.outcomes import OutcomeTable

        found = OutcomeTable.load(place)
        values = np.array([found.answers[text] for text in found.answers], dtype=np.float32)
        return PayTable(list(found.answers), values, np.zeros_like(values), np.array(found.counts), 0.0)


METHOD = Outcome
