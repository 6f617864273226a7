"""Control: another reward with its labels permuted over the labelled items.

The other reward's method defines the permutation (`Method.fit_shuffled`), and the artefact is one of that method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from laurel.data.json_file import read_json, write_json
from laurel.envs.base import EnvAdapter
from laurel.errors import DataError
from laurel.params.rewards import RewardParams, Source, method_of, settings_of
from laurel.rewards.base import Reward
from laurel.rewards.method import Inputs, Method, RewardContext

ORIGINAL = "original.json"
"""Settings of the reward whose labels were shuffled, for loading the artefact."""


class ShuffledParams(RewardParams):
    """Settings of shuffled labels."""

    of: str = "preference"
    """The reward whose labels are shuffled and whose settings are used; its kind must have labels."""


class ShuffledLabels(Method[ShuffledParams]):
    """Makes the same reward from shuffled labels, separately for each seed."""

    kind = "shuffled_labels"
    role = "control"
    summary = "a reward learned from labels permuted over pairs"
    Settings = ShuffledParams
    reads = ("captions", "preferences")
    per_seed = True

    def __init__(self, settings: ShuffledParams) -> None:
        super().__init__(settings)
        if settings.of != ShuffledParams.model_fields["of"].default:
            self.summary = f"the reward {settings.of} made from labels permuted over pairs or captions"

    def needs(self) -> Sequence[str]:
        return (self.settings.of,)

    def sources(self, rewards: Mapping[str, RewardParams]) -> Sequence[Source]:
        sources: Sequence[Source] = method_of(rewards[self.settings.of]).sources(rewards)
        return sources

    def judge(self, rewards: Mapping[str, RewardParams]) -> str:
        judge: str = method_of(rewards[self.settings.of]).judge(rewards)
        return judge

    def check(self, context: RewardContext, adapter: EnvAdapter) -> str | None:
        name = self.settings.of
        method: Method[RewardParams] = method_of(context.rewards[name])
        return method.check_shuffled(name, context, adapter)

    def fit(self, context: RewardContext, inputs: Inputs, adapter: EnvAdapter, seed: int, place: Path) -> None:
        original = context.rewards[self.settings.of]
        method_of(original).fit_shuffled(context, inputs, inputs.made(self.settings.of), seed, place)
        write_json(place / ORIGINAL, original.model_dump(mode="json"))

    def load(self, place: Path, adapter: EnvAdapter, quantile: float) -> Reward:
        return self._original(place).load(place, adapter, quantile)

    def made_from(self, place: Path) -> Sequence[Source]:
        return self._original(place).made_from(place)

    def _original(self, place: Path) -> Method[RewardParams]:
        """Return the method of the reward whose labels were shuffled."""
        if not (place / ORIGINAL).is_file():
            raise DataError(
                f"{place}: has no {ORIGINAL}, which old versions did not write. Run laurel train-reward again."
            )
        original: Method[RewardParams] = method_of(settings_of(self.settings.of, read_json(place / ORIGINAL)))
        return original


METHOD = ShuffledLabels
