"""collect: policies → trajectories, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def collect(
    seed: int,
    env: dict[str, Any],
    collect: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    trajectories: dsl.Output[dsl.Dataset],
    part: int = -1,
) -> None:
    """Step many environments with policies and keep every transition.

    Args:
        part: Which of collect.parts, from 0 on; -1 stands for all of them.
        trajectories: Parquet shards with a row for every environment step. Metadata: transitions, episodes and
            unfinished_episodes (counts), shards (files).
    """
    from laurel.components.step import sections_of, step, written
    from laurel.stages import collect as stage

    name, alone = ("collect", None) if part < 0 else (f"collect {part}", part)
    sections = sections_of(locals())
    with step(name, **sections) as given, written(trajectories) as output:
        stage.run(**given, output=output, part=alone)
