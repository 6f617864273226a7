"""What an arm is to whoever reads the results: its role, a label, the rewards it is paid, whether it is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from laurel.params import Params

Role = Literal["baseline", "method", "control", "bound"]
"""baseline: the environment's reward alone; method: a reward made from feedback; control: knows nothing of the task;
bound: hand-written progress, for reference."""


@dataclass(frozen=True, slots=True)
class ArmInfo:
    """An arm as the report, the figures and MLflow see it."""

    name: str
    role: Role
    label: str
    """What it is paid, for a reader of the report."""
    rewards: tuple[str, ...] = ()
    """Names of the rewards it is paid besides the environment's."""
    trained: bool = True


KNOWN: dict[str, ArmInfo] = {
    arm.name: arm
    for arm in (
        ArmInfo("extrinsic", "baseline", "the environment's reward alone"),
        ArmInfo("preference", "method", "the learned reward and the environment's", ("preference",)),
        ArmInfo("intrinsic_only", "method", "the learned reward alone", ("preference",)),
        ArmInfo("random_reward", "control", "a random reward for each caption", ("random_reward",)),
        ArmInfo(
            "shuffled_labels",
            "control",
            "a reward learned from the same answers given to the wrong pairs",
            ("shuffled_labels",),
        ),
        ArmInfo(
            "similarity",
            "method",
            "the annotator's similarity as reward, without pairs or a reward model",
            ("similarity",),
        ),
        ArmInfo("oracle", "bound", "hand-written progress as reward", ("oracle",)),
        ArmInfo("random_policy", "control", "random actions, never trained", trained=False),
    )
}
"""Name -> arm, of all that can be named in `agent.arms`."""


def arm_infos(params: Params) -> tuple[ArmInfo, ...]:
    """Return the arms of a run, as its params list them."""
    return tuple(KNOWN[name] for name in params.agent.arms)
