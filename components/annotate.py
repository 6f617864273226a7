"""annotate: captions → preferences, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def annotate(
    seed: int,
    env: dict[str, Any],
    caption: dict[str, Any],
    annotate: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Output[dsl.Dataset],
    judges: list[dict[str, Any]] = [],  # noqa: B006 - KFP's default of a list
    share: dict[str, Any] = {},  # noqa: B006
) -> None:
    """Ask an annotator which of two captions is better.

    Args:
        judges: Output of judges: who is asked about all pairs; nothing is asked without one.
        share: Instead of judges, one of its entries: a share of the pairs (shard, from 0 on, of shards) and who is
            asked about it.
        preferences: Parquet: the pairs, and for each the probability that its first is better (0 to 1, null where
            there is no answer). Metadata: pairs, and how many have each status.
    """
    from pathlib import Path

    from laurel.components.step import responses, sections_of, step, written
    from laurel.stages import annotate as stage

    shard = (int(share["shard"]), int(share["shards"])) if share else None
    asked = (share or judges[0])["judges"]
    name = f"annotate {shard[0]}" if shard else "annotate"
    sections = sections_of(locals())
    with step(name, **sections) as given, written(preferences) as output:
        inputs: dict[str, Any] = {"captions": Path(captions.path), "responses": responses()}
        stage.run(**given, **inputs, judges=asked, output=output, shard=shard)
