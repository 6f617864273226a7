"""caption: trajectories → captions, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def caption(
    params: dict[str, Any],
    code_version: str,
    trajectories: dsl.Input[dsl.Dataset],
    captions: dsl.Output[dsl.Dataset],
) -> None:
    """Say every transition in words and count the distinct captions.

    Args:
        params: The content of params.yaml; sections env and caption are used.
        code_version: Commit or version of the code; a cached result of another one is not used.
        trajectories: Output of collect.
        captions: Parquet: a caption id for every environment step, the vocabulary, the segments that are judged.
            Metadata: transitions, captioned and distinct (counts), fraction_unique (0 to 1).
    """
    from pathlib import Path

    from laurel.components.step import describe, step
    from laurel.stages import caption as stage

    with step("caption", params) as checked:
        stage.run(checked, Path(trajectories.path), output=Path(captions.path))
        describe(captions)
