"""One episode of the reference environment, step by step: frame, caption and rewards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from laurel.agents.actor import Actor, View
from laurel.envs.base import EnvAdapter, Transitions
from laurel.envs.captioner import NO_CAPTION, Captioner
from laurel.envs.guard import check_rewards
from laurel.envs.info import named_info_of_one
from laurel.evaluation.formats import counted
from laurel.evaluation.rendering import Picture, view
from laurel.evaluation.rollout import LearnedReward
from laurel.rewards.paying import RewardCalculator


@dataclass(frozen=True, slots=True)
class Moment:
    """An episode after some steps; the first moment, after none, is its beginning."""

    step: int
    view: Picture | str
    """The environment's unscaled rendering: a picture, or text."""
    action: str = ""
    """Name of the last action; empty before the first."""
    caption: str = ""
    """Caption of the step; empty at the start and if the step has none."""
    reward: float = 0.0
    """The environment's own."""
    learned: float | None = None
    """The learned reward, normalised; None without one, or where it does not score the step."""
    shaped: float | None = None
    """The shaped reward, before its weight; None where the step is paid none."""
    total: float = 0.0
    """The environment's return so far."""
    terminated: bool = False
    truncated: bool = False
    success: bool | None = None
    """Whether it succeeded; None if success is undefined, or the episode has not ended."""
    cut: bool = False
    """Whether the recording stops here although the episode has not ended."""

    @property
    def picture(self) -> Picture:
        assert not isinstance(self.view, str), "of an environment that renders rgb_array"
        return self.view

    @property
    def over(self) -> bool:
        """Whether the episode ended with this step."""
        return self.terminated or self.truncated

    @property
    def last(self) -> bool:
        """Whether this is the last moment of the episode."""
        return self.over or self.cut

    @property
    def text(self) -> str:
        """The caption, or a text to show if there is none."""
        return self.caption or ("Nothing to say." if self.step else "The episode begins.")

    @property
    def outcome(self) -> str:
        """The state of the episode in a few words."""
        if self.success is not None:
            return "solved" if self.success else "not solved"
        return "episode over" if self.over else f"cut after {counted(self.step, 'step')}" if self.cut else "continues"


def signed(value: float | None) -> str:
    """Return a reward with its sign; "-" without a reward.

    >>> signed(0.25), signed(-0.001), signed(None)
    ('+0.25', '+0.00', '-')
    """
    return "-" if value is None else f"{value:+z.2f}"


def moments(
    reference: gym.Env[Any, Any],
    adapter: EnvAdapter,
    actor: Actor,
    rng: np.random.Generator,
    captioner: Captioner,
    max_steps: int,
    seed: int,
    learned: LearnedReward | None,
) -> Iterator[Moment]:
    """Play one episode.

    Args:
        captioner: of that adapter; the same one for all episodes that are scored by `learned`.
        max_steps: after which the recording is cut.

    Raises:
        NotRenderedError: the environment does not render what its mode says.
    """
    observation, _ = reference.reset(seed=seed)
    before = adapter.pack_one(observation)[None]
    actor.begin(np.array([True]))
    calculator = RewardCalculator(adapter, learned.reward, learned.shaping, 1, captioner) if learned else None
    total, step, done = 0.0, 0, False
    yield Moment(0, view(reference))
    while step < max_steps and not done:
        action = adapter.taken(actor.act(View(adapter, before), rng).action)
        taken = int(action[0]) if isinstance(reference.action_space, gym.spaces.Discrete) else action[0]
        observation, gained, ended, cut, info = reference.step(taken)
        after = adapter.pack_one(observation)[None]
        terminated, truncated = bool(ended), bool(cut) and not ended
        step, total, done = step + 1, total + float(gained), terminated or truncated
        check_rewards(np.array([gained], np.float32), adapter.env_id, step)
        transition = Transitions(
            before,
            action,
            np.array([gained], np.float32),
            after,
            np.array([terminated]),
            np.array([truncated]),
            named_info_of_one(adapter, info),
        )
        caption, raw, paid = captioner.ids(transition)[0], None, None
        if calculator is not None:
            ends = transition.terminated[None], transition.truncated[None]
            pay = calculator.pay(transition, np.array([[True]]), *ends)
            if scored := bool(pay.scored[0, 0]):
                raw = float(pay.raw[0, 0])
            if scored or pay.shaped[0, 0]:  # a potential also pays a step that does not change it
                paid = float(pay.shaped[0, 0])
        success = adapter.succeeded(np.array([total], np.float32), transition) if done else None
        yield Moment(
            step,
            view(reference),
            adapter.action_name(action[0]),
            "" if caption == NO_CAPTION else captioner.texts[caption],
            float(gained),
            raw,
            paid,
            total,
            terminated,
            truncated,
            None if success is None else bool(success[0]),
            cut=step == max_steps and not done,
        )
        before = after
