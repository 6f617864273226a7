"""The sections of params.yaml that training and evaluating agents depends on, as stages take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from laurel.params import CaptionParams, CollectParams, EnvParams, EvaluateParams, TrackingParams
from laurel.params.annotation import AnnotateParams
from laurel.params.arms import Arm, ArmParams, resolve_arms
from laurel.params.rewards import RewardParams
from laurel.params.training import AgentParams, ShapingParams


class TrainingSections(TypedDict):
    """What training agents depends on."""

    seed: int
    env: EnvParams
    caption: CaptionParams
    annotate: AnnotateParams
    arms: Sequence[ArmParams]
    rewards: Mapping[str, RewardParams]
    shaping: ShapingParams
    agent: AgentParams
    tracking: TrackingParams


class EvaluationSections(TrainingSections):
    """What evaluating agents depends on."""

    collect: CollectParams
    evaluate: EvaluateParams


def arms_of(sections: TrainingSections) -> dict[str, Arm]:
    """See `laurel.params.arms.resolve_arms`."""
    return resolve_arms(sections["arms"], sections["rewards"], sections["shaping"], sections["agent"])
