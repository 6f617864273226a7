"""Control: a reward model of the same form, trained on the same answers given to the wrong pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from laurel.params.annotation import MAIN
from laurel.params.rewards import PreferenceParams, RewardParams
from laurel.rewards.method import Inputs, Method, RewardContext

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.rewards.base import Reward


class ShuffledParams(RewardParams):
    """Settings of shuffled labels."""

    of: str = "preference"
    """The reward, of kind preference, whose labels are shuffled and whose settings are taken."""


class ShuffledLabels(Method):
    """Fits the same ensemble for as many epochs."""

    kind = "shuffled_labels"
    role = "control"
    summary = "a reward learned from the same answers given to the wrong pairs"
    Settings = ShuffledParams
    reads = ("captions", "preferences")
    per_seed = True

    def needs(self, settings: RewardParams) -> Sequence[str]:
        return (_of(settings),)

    def judge(self, settings: RewardParams, rewards: Mapping[str, RewardParams]) -> str:
        original = rewards[_of(settings)]
        return original.judge if isinstance(original, PreferenceParams) else MAIN

    def check(self, settings: RewardParams, params: RewardContext, adapter: EnvAdapter) -> str | None:
        from laurel.errors import ParamsError

        original = params.rewards[_of(settings)]
        if not isinstance(original, PreferenceParams):
            raise ParamsError(
                f"rewards: labels of {_of(settings)} cannot be shuffled, as its kind is {original.kind}. "
                "Name a reward of kind preference."
            )
        return None if original.input == "caption" else f'it needs rewards.{_of(settings)}.input "caption".'

    def fit(
        self, settings: RewardParams, params: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path
    ) -> None:
        from laurel.rewards.model import RewardModel
        from laurel.rewards.training import shuffled_model, usable_comparisons

        original = cast(PreferenceParams, params.rewards[_of(settings)])
        _, comparisons = usable_comparisons(inputs.captions, inputs.preferences)
        model = RewardModel.load(inputs.made(_of(settings)))
        shuffled_model(model, comparisons, original, seed).save(place)

    def load(self, settings: RewardParams, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        from laurel.rewards.functions import learned
        from laurel.rewards.model import RewardModel

        return learned(RewardModel.load(place), adapter, quantile)


def _of(settings: RewardParams) -> str:
    return cast(ShuffledParams, settings).of


METHOD = ShuffledLabels
