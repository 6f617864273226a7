"""Code shared by the wrappers: the environment's adapter, the layer whose transitions are captioned, and the reward."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from laurel.arrays import BoolArray, FloatArray
from laurel.envs import adapter_of, make_reference, reference_id
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.captioner import NO_CAPTION, Captioner
from laurel.envs.spaces import leaves_of
from laurel.errors import EnvError
from laurel.library.reward import LoadedReward, Shaping, load_reward, shaping_of
from laurel.plugins import in_short
from laurel.rewards.base import UNPAID
from laurel.rewards.paying import RewardCalculator

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

INFO = "laurel"
"""Key in `info` of a step's reward parts and caption."""
WRAP_SINGLE = (
    "Where wrappers of the single environments change them, wrap each environment in laurel.RewardWrapper before they "
    "become a {}."
)

_OF_MAKING = ("render_mode", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
"""Entries of a spec's kwargs that are not the environment's."""
_ADDED = (PassiveEnvChecker, OrderEnforcing, TimeLimit)
"""Layers that Gymnasium adds to every environment; they change neither observations nor actions."""

logger = logging.getLogger(__name__)
_Layer = TypeVar("_Layer")


class StepRewards(NamedTuple):
    """The rewards of a step of N environments; all (N,)."""

    total: FloatArray
    """What agents learn from: the weighted sum of the environment's reward and the shaped one."""
    caption: Sequence[str]
    """Empty for a step without a caption."""
    raw: FloatArray
    """The learned reward, normalised; NaN where it has no value."""
    shaped: FloatArray
    """The shaped reward, before its weight."""


class Payer:
    """Rewards the steps of N user environments exactly as Laurel's training does.

    Args:
        reward: a reward, or its location as for `load_reward`.
        spec: of the environments; None: assume the environment that the reward was made for.
        n_envs: N.
    """

    def __init__(self, reward: LoadedReward | str | Path, shaping: Shaping, spec: EnvSpec | None, n_envs: int) -> None:
        loaded = reward if isinstance(reward, LoadedReward) else load_reward(reward)
        settings = shaping_of(shaping)
        if settings.form == "potential" and settings.gamma is None:
            logger.warning(
                "shaping.gamma is not set, so the potential of the next step is not discounted, as for an agent that "
                "learns with a discount of 1. Set it to the trainer's: optimal policies may change otherwise."
            )
        params = loaded.env
        if spec is not None and spec.id in gym.registry:
            if spec.id != reference_id(params):
                logger.warning("The reward %s was made for %s, but is used in %s.", loaded.name, params.id, spec.id)
                params = params.model_copy(update={"id": spec.id})
            kwargs = {name: value for name, value in spec.kwargs.items() if name not in _OF_MAKING}
            params = params.model_copy(update={"kwargs": kwargs, "max_episode_steps": None})
        reference = make_reference(params)
        try:
            self.adapter: EnvAdapter = adapter_of(params, reference, with_action=loaded.stored.with_action)
            self._shown, self._acted = reference.observation_space, reference.action_space
            self._depth = _depth(reference) - 1  # without Laurel's guard
        finally:
            reference.close()
        self._captioner = Captioner(self.adapter)
        self._calculator = RewardCalculator(
            self.adapter, loaded.on(self.adapter, settings.quantile), settings, n_envs, self._captioner
        )
        self._nothing = np.zeros((n_envs, self.adapter.observation_size), self.adapter.observation_dtype)

    def watched(
        self, env: Any, inner: str, watch: Callable[[Any, EnvAdapter], _Layer], advice: str
    ) -> tuple[Any, _Layer]:
        """Wrap the innermost layer whose observations and actions captions are made from.

        Layers inside the registered environment may have the same spaces, but not the same observations.

        Args:
            inner: attribute that holds the inner layer.
            advice: what to do where no layer fits.

        Returns:
            The outermost layer now, and the wrapper.

        Raises:
            EnvError: no layer fits.
        """
        layers, wanted = list(_chain(env, inner)), (_numbers(self._shown), _numbers(self._acted))
        single = "single_" if isinstance(env, gym.vector.VectorEnv) else ""
        shown = [
            tuple(_numbers(getattr(layer, f"{single}{kind}_space")) for kind in ("observation", "action"))
            for layer in layers
        ]
        matching = [i for i, spaces in enumerate(shown) if spaces == wanted]
        if not matching:
            raise EnvError(
                f"{self.adapter.env_id}: captions are made from observations of {_short(self._shown)} and actions of "
                f"{_short(self._acted)}, but none of these layers shows them: "
                f"{', '.join(type(layer).__name__ for layer in layers)}. {advice}"
            )
        single_env = isinstance(env, gym.Env)  # layers of vector environments hold whole ones
        place = ([i for i in matching if single_env and _depth(layers[i]) >= self._depth] or matching)[-1]
        watching = watch(layers[place], self.adapter)
        if place == 0:
            return watching, watching
        setattr(layers[place - 1], inner, watching)
        return env, watching

    def pay(
        self, transitions: Transitions, valid: BoolArray, terminated: BoolArray, truncated: BoolArray, extrinsic: Any
    ) -> StepRewards:
        """Reward T * N transitions as `RewardCalculator.pay` does; `extrinsic` (N,) is their sum of environment
        rewards.

        Where T is more than 1, as with a wrapper that repeats actions, their rewards are summed.
        """
        pay = self._calculator.pay(transitions, valid, terminated, truncated)
        shaped = pay.shaped.sum(axis=0)
        scored = np.where(pay.raw > UNPAID, pay.raw, np.nan)
        raw = scored[-1] if len(scored) else np.full(shaped.shape, np.nan, np.float32)
        total = self._calculator.mixed(np.asarray(extrinsic, np.float32), shaped)
        return StepRewards(total, [self._caption(ids) for ids in pay.captions.T], raw, shaped)

    def abandon(self, mask: BoolArray) -> None:
        """Drop the episodes (N,) that a reset cut off before their end."""
        if mask.any():
            n = len(mask)
            no, zero = np.zeros(n, np.bool_), np.zeros(n, np.float32)
            self._calculator.abandon(Transitions(self._nothing, zero, zero, self._nothing, no, no), mask)

    def _caption(self, ids: Any) -> str:
        return " ".join(self._captioner.texts[caption] for caption in ids if caption != NO_CAPTION)


def _chain(env: Any, inner: str) -> Iterator[Any]:
    """Yield an environment and those it wraps, outermost first; `inner` is the attribute of the inner one."""
    yield env
    while (env := getattr(env, inner, None)) is not None:
        yield env


def _depth(env: gym.Env[Any, Any]) -> int:
    """Return how many layers an environment has, without those that Gymnasium adds."""
    return sum(not isinstance(layer, _ADDED) for layer in _chain(env, "env"))


def check_wrappable(env: Any, inner: str, wrapper: type, kind: type) -> None:
    """Refuse an environment that is not of the wrapper's kind, or already pays a learned reward.

    Args:
        inner: the attribute of the environment inside a wrapper.

    Raises:
        EnvError: it is one of these.
    """
    if not isinstance(env, kind):
        raise EnvError(
            f"{wrapper.__name__} cannot wrap {in_short(env)}. RewardWrapper takes a gymnasium.Env, RewardVectorWrapper "
            "a gymnasium.vector.VectorEnv, and RewardVecEnv a VecEnv of Stable-Baselines3."
        )
    if any(isinstance(layer, wrapper) for layer in _chain(env, inner)):
        raise EnvError(
            f"The environment is in a {wrapper.__name__} already. Wrap it once; a weighted sum of rewards is an arm of "
            "params.yaml."
        )


def _numbers(space: gym.Space[Any]) -> Any:
    """Return a key that is equal for spaces whose observations are packed alike, ignoring text."""
    try:
        return [(leaf.name, leaf.space) for leaf in leaves_of(space)]
    except EnvError:  # the adapter packs such observations itself
        return space


def _short(space: gym.Space[Any]) -> str:
    text = str(space)
    return text if len(text) < 160 else f"{text[:157]}..."
