"""collect: policies → trajectories, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def collect(params: dict[str, Any], code_version: str, trajectories: dsl.Output[dsl.Dataset]) -> None:
    """Step many environments with policies and keep every transition.

    Args:
        params: The content of params.yaml; sections seed, env and collect are used.
        code_version: Commit or version of the code; a cached result of another one is not used.
        trajectories: Parquet shards with a row for every environment step. Metadata: transitions, episodes and
            unfinished_episodes (counts), shards (files).
    """
    from pathlib import Path

    from laurel.components.step import describe, step
    from laurel.stages import collect as stage

    with step("collect", params) as checked:
        stage.run(checked, output=Path(trajectories.path))
        describe(trajectories)
