"""annotate: captions → preferences, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def annotate(
    params: dict[str, Any],
    code_version: str,
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Output[dsl.Dataset],
) -> None:
    """Ask an annotator which of two captions is better.

    Args:
        params: The content of params.yaml; sections seed, env, caption and annotate are used.
        code_version: Commit or version of the code; a cached result of another one is not used.
        captions: Output of caption.
        preferences: Parquet: the pairs, and for each the probability that its first is better (0 to 1, null where
            there is no answer). Metadata: pairs and how many are ok, tie, abstain, parse_failed, api_failed.
    """
    from pathlib import Path

    from laurel.components.step import describe, step
    from laurel.stages import annotate as stage

    with step("annotate", params) as checked:
        stage.run(checked, Path(captions.path), output=Path(preferences.path))
        describe(preferences)
