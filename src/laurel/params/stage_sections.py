"""The sections of params.yaml that each stage depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from laurel.params import CaptionParams, CollectParams, EnvParams, EvaluateParams, TrackingParams
from laurel.params.annotation import AnnotateParams
from laurel.params.arms import ArmParams
from laurel.params.resolved_arms import Arm, resolve_arms
from laurel.params.rewards import RewardParams
from laurel.params.training import AgentParams, ShapingParams


class AnnotateSections(TypedDict):
    """Sections that labels depend on."""

    seed: int
    env: EnvParams
    caption: CaptionParams
    annotate: AnnotateParams
    judges: Sequence[str]
    """Names of the judges that arms need: MAIN, or those of annotate.judges; () asks nothing."""
    tracking: TrackingParams


class RewardSections(TypedDict):
    """Sections that rewards depend on."""

    seed: int
    env: EnvParams
    caption: CaptionParams
    annotate: AnnotateParams
    arms: Sequence[ArmParams]
    rewards: Mapping[str, RewardParams]
    agent: AgentParams
    tracking: TrackingParams


class TrainingSections(RewardSections):
    """Sections that training agents depends on."""

    shaping: ShapingParams


class EvaluationSections(TrainingSections):
    """Sections that evaluation depends on."""

    collect: CollectParams
    evaluate: EvaluateParams


def arms_of(sections: TrainingSections) -> dict[str, Arm]:
    """See `laurel.params.resolved_arms.resolve_arms`."""
    return resolve_arms(sections["arms"], sections["rewards"], sections["shaping"], sections["agent"])
