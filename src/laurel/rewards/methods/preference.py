"""A Bradley-Terry reward model of the annotator's preferences between captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from laurel.data.json_file import write_json
from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.feedback.annotator_kind import is_directory
from laurel.params.rewards import PreferenceParams, RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import learned
from laurel.rewards.method import QUALITY, Inputs, Method, PayTable, RewardContext


class Preference(Method[PreferenceParams]):
    """Fits a Bradley-Terry ensemble, and measures its quality."""

    kind = "preference"
    summary = "the learned reward"
    Settings = PreferenceParams
    reads = ("trajectories", "captions", "preferences")

    def named_files(self) -> Mapping[str, str]:
        encoder = self.settings.encoder
        return {"encoder": encoder} if self.settings.input == "caption" and is_directory(encoder) else {}

    def judge(self, rewards: Mapping[str, RewardParams]) -> str:
        return self.settings.judge

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        length = context.caption.segment_length
        if self.settings.input == "observation" and length > 1:
            raise ParamsError(
                f'{context.key(self.settings)}: a reward with input "observation" learns from single steps, but '
                f"caption.segment_length is {length}. Set it to 1, or input to caption."
            )
        return None

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.rewards.training import train_reward_model

        assert inputs.trajectories is not None
        model, quality = train_reward_model(
            seed, self.settings, adapter, inputs.trajectories, inputs.captions, inputs.preferences
        )
        model.save(place)
        write_json(place / QUALITY, quality)

    def notes(self, name: str, qualities: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Yield notes on label sets that have a label for most pairs, and whose clear labels the reward contradicts."""
        from laurel.rewards.bradley_terry import DENSE, ENOUGH

        for number, quality in enumerate(qualities):
            clear, of_set = quality["clear_pairs"], f" of label set {number}" if len(qualities) > 1 else ""
            followed = quality["clear_pairs_followed"]
            if quality["judged_share"] >= DENSE and followed < ENOUGH * clear:
                yield (
                    f"The reward {name} contradicts {clear - followed:,} of the {clear:,} clear labels{of_set} that it "
                    "learned from (p up to 25% or from 75% on). Wrong labels often contradict others, and then not all "
                    f"can be followed. If the labels are right, raise rewards.{name}.patience or max_epochs, or try "
                    "another encoder."
                )

    def check_shuffled(self, name: str, context: RewardContext, adapter: EnvAdapter) -> str | None:
        return None if self.settings.input == "caption" else f'it needs rewards.{name}.input "caption".'

    def fit_shuffled(self, context: RewardContext, inputs: Inputs, made: Path, seed: int, place: Path) -> None:
        """Fit the same ensemble for the same number of epochs to labels permuted over pairs."""
        from laurel.rewards.model import RewardModel
        from laurel.rewards.training import shuffled_model, usable_comparisons

        _, comparisons = usable_comparisons(inputs.captions, inputs.preferences)
        shuffled_model(RewardModel.load(made), comparisons, self.settings, seed).save(place)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        from laurel.rewards.model import RewardModel

        return learned(RewardModel.load(place), adapter, quantile)

    def table(self, place: Path, quantile: float) -> PayTable:
        from laurel.rewards.model import RewardModel

        model = RewardModel.load(place)
        return PayTable(model.texts, model.rewards, model.spreads, model.counts, model.normalizer.threshold(quantile))


METHOD = Preference
