"""judges: arms → who must be asked, as a component: arms may change without a question being asked again."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def judges(
    env: dict[str, Any],
    arms: list[dict[str, Any]],
    rewards: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
) -> list[str]:
    """Say whose preferences the rewards of the arms are learned from.

    Args:
        env: Section env of params.yaml.
        arms: Section arms.
        rewards: Section rewards.
        tracking: Section tracking.
        code_version: Commit or version of the code; a cached result of another one is not used.

    Returns:
        Names of judges: main, or of annotate.judges; none where no annotator is to be asked.
    """
    from laurel.components.step import sections_of, step
    from laurel.params.arms import judges_of

    with step("judges", **sections_of(locals())) as given:
        return list(judges_of(given["arms"], given["rewards"]))
