"""merge-preferences: shares of the pairs → preferences, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def merge_preferences(
    seed: int,
    env: dict[str, Any],
    caption: dict[str, Any],
    annotate: dict[str, Any],
    judges: list[dict[str, Any]],
    tracking: dict[str, Any],
    code_version: str,
    captions: dsl.Input[dsl.Dataset],
    shards: dsl.Input[list[dsl.Dataset]],
    preferences: dsl.Output[dsl.Dataset],
) -> None:
    """Join pairs that were judged apart; the result is as if they had been judged at once.

    Args:
        judges: Output of judges: who was asked, for each share.
        captions: Output of caption; the shares must come from it.
        shards: Outputs of annotate, one for each share.
        preferences: Parquet: the pairs, and for each the probability that its first is better (0 to 1, null where
            there is no answer). Metadata: pairs, and how many have each status.
    """
    from pathlib import Path

    from laurel.components.step import sections_of, step, written
    from laurel.stages import merge_preferences as stage

    sections = sections_of(locals())
    with step("merge-preferences", **sections) as given, written(preferences) as output:
        places = [Path(shard.path) for shard in shards]
        stage.run(**given, judges=judges[0]["judges"], captions=Path(captions.path), shards=places, output=output)
