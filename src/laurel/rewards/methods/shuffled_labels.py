"""Control: a reward model of the same form, trained on the same answers given to the wrong pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from laurel.envs.base import EnvAdapter
from laurel.errors import ParamsError
from laurel.params.annotation import MAIN
from laurel.params.rewards import PreferenceParams, RewardParams
from laurel.rewards.base import Reward
from laurel.rewards.functions import learned
from laurel.rewards.method import Inputs, Method, RewardContext
from laurel.rewards.methods.text import Text, TextParams
from laurel.rewards.text import CONFIG


class ShuffledParams(RewardParams):
    """Settings of shuffled labels."""

    of: str = "preference"
    """The reward, of kind preference or text, whose labels are shuffled and whose settings are taken."""


class ShuffledLabels(Method[ShuffledParams]):
    """Fits the same ensemble for as many epochs, or the same reward model of texts."""

    kind = "shuffled_labels"
    role = "control"
    summary = "a reward learned from the same answers given to the wrong pairs"
    Settings = ShuffledParams
    reads = ("captions", "preferences")
    per_seed = True

    def needs(self) -> Sequence[str]:
        return (self.settings.of,)

    def judge(self, rewards: Mapping[str, RewardParams]) -> str:
        original = rewards[self.settings.of]
        return original.judge if isinstance(original, PreferenceParams | TextParams) else MAIN

    def check(self, params: RewardContext, adapter: EnvAdapter) -> str | None:
        original = params.rewards[self.settings.of]
        if isinstance(original, TextParams) and original.path is None:
            return None
        if not isinstance(original, PreferenceParams):
            raise ParamsError(
                f"rewards: labels of {self.settings.of} cannot be shuffled, as its kind is {original.kind}. "
                "Name a reward of kind preference, or one of kind text without a path."
            )
        return None if original.input == "caption" else f'it needs rewards.{self.settings.of}.input "caption".'

    def fit(self, params: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        from laurel.data.own_preferences import read_own
        from laurel.rewards.model import RewardModel
        from laurel.rewards.training import shuffled_model, usable_comparisons

        original = params.rewards[self.settings.of]
        if isinstance(original, TextParams):
            rows = read_own(inputs.preferences, inputs.captions).shuffled(seed)
            Text(original).fit_rows(rows, inputs, seed, place)
            return
        assert isinstance(original, PreferenceParams)
        _, comparisons = usable_comparisons(inputs.captions, inputs.preferences)
        model = RewardModel.load(inputs.made(self.settings.of))
        shuffled_model(model, comparisons, original, seed).save(place)

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        from laurel.rewards.model import RewardModel

        if (place / CONFIG).is_file():
            return Text(TextParams(kind=Text.kind)).load(place, adapter, quantile)
        return learned(RewardModel.load(place), adapter, quantile)


METHOD = ShuffledLabels
