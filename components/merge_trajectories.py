"""merge-trajectories: the parts of a collection → trajectories, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def merge_trajectories(
    seed: int,
    env: dict[str, Any],
    collect: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    parts: dsl.Input[list[dsl.Dataset]],
    trajectories: dsl.Output[dsl.Dataset],
) -> None:
    """Join parts that were collected apart; the result is as if they had been collected at once.

    Args:
        parts: Outputs of collect, one for each of collect.parts.
        trajectories: Parquet shards with a row for every environment step. Metadata: transitions, episodes and
            unfinished_episodes (counts), shards (files).
    """
    from pathlib import Path

    from laurel.components.step import sections_of, step, written
    from laurel.stages import merge_trajectories as stage

    sections = sections_of(locals())
    with step("merge-trajectories", **sections) as given, written(trajectories) as output:
        stage.run(**given, parts=[Path(part.path) for part in parts], output=output)
