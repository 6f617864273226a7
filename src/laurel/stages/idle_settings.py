"""Settings that are allowed, but have no effect together with others, or hardly the one that was meant."""

from __future__ import annotations

from collections.abc import Iterator

from laurel.evaluation.formats import counted
from laurel.params import Params
from laurel.params.training import ShapingParams


def idle_settings(params: Params) -> Iterator[str]:
    """Yield a sentence about each such setting."""
    collect = params.collect
    if (steps := -(-collect.steps // collect.parts)) < collect.n_envs:
        suffix = " of each part" if collect.parts > 1 else ""
        yield (
            f"collect.n_envs is {collect.n_envs:,}, but there are only {counted(steps, 'step')} in all{suffix}: no "
            "environment gets beyond the first step of its episode. Set fewer environments, or more steps."
        )
    for arm in params.arms:
        for name in [name for name, weight in arm.reward.items() if arm.trained and not weight]:
            yield (
                f"arms.{arm.name}.reward gives {name} the weight 0: it adds nothing, but it is made all the same, and "
                "its judge is asked. Leave it out to save the time and cost."
            )
    yield from _shaping(params)
    for name, reward in params.rewards.items():
        for key, reason in reward.idle().items():
            if key in reward.model_fields_set and getattr(reward, key) != type(reward).model_fields[key].default:
                yield f"rewards.{name}.{key} has no effect with {reason}."


def _shaping(params: Params) -> Iterator[str]:
    """Yield sentences about keys of the shaping that have no effect on the arm that sets them, or on any."""
    shaped = [(arm, arm.shaping_of(params.shaping)) for arm in params.arms if arm.trained and arm.reward]
    for arm, keys in shaped:
        for key, reason in keys.idle().items():
            if key in arm.shaping:
                yield f"arms.{arm.name}.shaping.{key} has no effect with {reason}."
    for key, field in ShapingParams.model_fields.items():
        inherit = [keys.idle().get(key) for arm, keys in shaped if key not in arm.shaping]
        if inherit and all(inherit) and getattr(params.shaping, key) != field.default:
            yield f"shaping.{key} has no effect with {inherit[0]}."
