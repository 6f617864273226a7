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
    shards: int = 1,
) -> list[dict[str, Any]]:
    """Say whose preferences the rewards of the arms are learned from.

    Args:
        shards: How many steps annotation is divided among.

    Returns:
        For each share of the pairs its shard, shards, and judges: names of judges (main, or of annotate.judges; none
            where no annotator is to be asked). All in one, since KFP's local runner hands a loop nothing of an earlier
            step but the items that it loops over.
    """
    from laurel.components.step import sections_of, step
    from laurel.params.arms import judges_of

    with step("judges", **sections_of(locals())) as given:
        names = list(judges_of(given["arms"], given["rewards"]))
    return [{"shard": shard, "shards": shards, "judges": names} for shard in range(shards)]
