"""Which arms can be paid what they are to be paid, in an environment. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from laurel.envs.base import EnvAdapter
from laurel.params import Params
from laurel.params.arms import ArmParams
from laurel.params.rewards import METHODS, method_of


def skipped_arms(params: Params, adapter: EnvAdapter) -> dict[str, str]:
    """Return arm -> a sentence that says why it cannot be trained here."""
    skipped = {}
    for arm in params.arms:
        for name in arm.reward:
            settings = params.rewards[name]
            why = method_of(settings).check(settings, params, adapter)
            if why:
                skipped[arm.name] = f"The arm {arm.name} was left out: {why}"
    return skipped


def trained_arms(params: Params, adapter: EnvAdapter) -> tuple[str, ...]:
    """Return the names of the arms that are trained here, in order."""
    skipped = skipped_arms(params, adapter)
    return tuple(arm.name for arm in params.arms if arm.trained and arm.name not in skipped)


def trainers(params: Params) -> str:
    """Name the algorithms that arms are trained with."""
    trained = [params.for_arm(arm.name).agent.trainer for arm in params.arms if arm.trained]
    return ", ".join(dict.fromkeys(trained)) or params.agent.trainer


def may_need_preferences(arms: Iterable[ArmParams]) -> bool:
    """Whether arms may be paid rewards that are learned from preferences, as far as the rewards' names say.

    For a step that does not see the section `rewards`, lest it ask again whenever a setting there changes. A name that
    is not a method's own may be of any method.
    """
    names = {name for arm in arms if arm.trained for name in arm.reward}
    return any(name not in METHODS.kinds() or "preferences" in METHODS.load(name, "arms").reads for name in names)
