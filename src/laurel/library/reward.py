"""A run's reward in the user's own code: scores of captions, and rewards of an episode's steps."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from laurel.arrays import FloatArray
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import NO_CAPTION
from laurel.errors import DataError, ParamsError
from laurel.library.sources import fetched
from laurel.params import EnvParams, parse_sections
from laurel.params.rewards import RewardParams, method_of
from laurel.params.training import ShapingParams
from laurel.rewards.base import UNPAID, Reward
from laurel.rewards.functions import CaptionReward
from laurel.rewards.paying import shaper
from laurel.rewards.shaping import Ends
from laurel.rewards.stored import Described, described

Shaping = ShapingParams | Mapping[str, Any] | None
"""The section `shaping` of params.yaml, or only the keys that differ from the defaults."""


def load_reward(source: str | Path, *, seed: int | None = None) -> LoadedReward:
    """Load a reward that `laurel train-reward` made.

    Args:
        source: its folder, e.g. data/reward/preference; data/reward where that holds a single method's reward; or as
            `laurel.library.sources.fetched` has it: models:/NAME@ALIAS, hf://OWNER/NAME.
        seed: of the agent, where its reward is made for each seed, as random_reward, or for each label set (the seed
            modulo their number); None: the first.

    Raises:
        DataError: it is missing, damaged, or not a reward.
        ParamsError: `source` is not a path, or `seed` is not a whole number.
    """
    if isinstance(seed, bool) or not isinstance(seed, SupportsIndex | None):
        raise ParamsError(f"laurel: seed is {seed!r:.60}, but must be a whole number or None.")
    seed = None if seed is None else operator.index(seed)
    return LoadedReward(described(fetched(source), seed))


@dataclass(frozen=True)
class LoadedReward:
    """A stored reward. Small and picklable: weights are loaded on use."""

    stored: Described

    @property
    def name(self) -> str:
        """As params.yaml calls it."""
        return self.stored.name

    @property
    def settings(self) -> RewardParams:
        """The settings that it was made with; `settings.kind` is its method."""
        return self.stored.settings

    @property
    def env(self) -> EnvParams:
        """The environment that it was made for."""
        return self.stored.env

    def score(self, texts: Sequence[str]) -> FloatArray:
        """Return the rewards (N,) of N captions.

        They are normalised, so that their mean over collected captions is 0, unless the method has nothing to fit and
        gives rewards as they are, as `oracle` does.

        Raises:
            DataError: the reward does not score single captions.
            ParamsError: `texts` is not several texts.
        """
        return self._of_captions(0.0).scored(_several(texts, "texts"))

    def pay(self, captions: Sequence[str], shaping: Shaping = None, *, terminated: bool = True) -> FloatArray:
        """Return the rewards of an episode's steps (T,) for their captions, without the weights of `shaping`.

        Args:
            captions: of the steps, in order; an empty one earns 0.
            shaping: as in params.yaml, e.g. {"beta": 0}; None: the defaults.
            terminated: the episode ends by the task's own rules with the last step.

        Raises:
            DataError: the reward does not score single captions.
            ParamsError: `shaping` is not valid, or `captions` is not several texts.
        """
        captions = _several(captions, "captions")
        settings = shaping_of(shaping)
        reward = self._of_captions(settings.quantile)
        distinct = [text for text in dict.fromkeys(captions) if text]
        number = {"": NO_CAPTION, **{text: n for n, text in enumerate(distinct)}}
        ids = np.array([number[text] for text in captions], np.int64)[:, None]
        raw = np.append(reward.scored(distinct), UNPAID)[ids]  # -1 is the last
        ended = np.zeros(ids.shape, np.bool_)
        ended[-1:] = terminated
        ends = Ends(np.ones(ids.shape, np.bool_), ended, np.zeros_like(ended))
        return shaper(settings, 1)(raw, reward.threshold, ids, ends)[:, 0]

    def on(self, adapter: EnvAdapter, quantile: float) -> Reward:
        """Return the reward function in an environment, for a single `RewardCalculator`; errors as in `load_reward`."""
        reward: Reward = method_of(self.settings).load(self.stored.place, adapter, quantile)
        return reward

    def _of_captions(self, quantile: float) -> CaptionReward:
        reward = self.on(adapter_for(self.env, with_action=self.stored.with_action), quantile)
        if not isinstance(reward, CaptionReward):
            raise DataError(
                f"{self.stored.place}: the reward {self.name} ({self.settings.kind}) does not score single captions. "
                f"Wrap an environment in laurel.RewardWrapper to use it."
            )
        return reward


def shaping_of(shaping: Shaping) -> ShapingParams:
    """Return the section `shaping`; keys that are not given have their defaults.

    Raises:
        ParamsError: a key is unknown, or a value is not allowed.
    """
    if isinstance(shaping, ShapingParams):
        return shaping
    if not isinstance(shaping, Mapping | None):
        raise ParamsError(f"laurel: shaping is {shaping!r:.60}, but must be a dictionary, such as {{'form': 'bonus'}}.")
    params: ShapingParams = parse_sections({"shaping": dict(shaping or {})}, "laurel")["shaping"]
    return params


def _several(texts: Any, name: str) -> list[str]:
    """Return texts of a list, an array, or a column of pandas, polars or Arrow.

    Raises:
        ParamsError: it is something else, such as a single text, each of whose letters would be scored, or a
            dictionary, whose keys would be.
    """
    if isinstance(texts, str):
        raise ParamsError(f"{name} is a single text, but must be a list of texts: [{texts!r:.60}].")
    if hasattr(texts, "to_pylist"):  # Arrow's own scalars are no texts
        texts = texts.to_pylist()
    if isinstance(texts, Mapping) or not isinstance(texts, Iterable):
        raise ParamsError(f"{name} is {texts!r:.60}, but must be a list of texts.")
    items = list(texts)
    for number, text in enumerate(items):
        if not isinstance(text, str):
            raise ParamsError(f"{name}[{number}] is {text!r:.60}, but must be a text.")
    return items
