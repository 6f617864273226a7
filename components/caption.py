"""caption: trajectories → captions, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def caption(
    env: dict[str, Any],
    caption: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    trajectories: dsl.Input[dsl.Dataset],
    captions: dsl.Output[dsl.Dataset],
) -> None:
    """Describe every transition in words, and count the distinct captions.

    Args:
        captions: Parquet: a caption id for every environment step, the vocabulary, the segments that are judged.
            Metadata: transitions, captioned and distinct (counts), fraction_unique (0 to 1).
    """
    from pathlib import Path

    from laurel.components.step import step, written
    from laurel.stages import caption as stage

    with step("caption", env=env, caption=caption, tracking=tracking) as given, written(captions) as output:
        stage.run(**given, trajectories=Path(trajectories.path), output=output)
