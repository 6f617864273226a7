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
    judges: list[str],
    tracking: dict[str, Any],
    code_version: str,
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Output[dsl.Dataset],
    shard: int = -1,
    shards: int = 1,
) -> None:
    """Ask an annotator which of two captions is better.

    Args:
        seed: All random numbers derive from it.
        env: Section env of params.yaml.
        caption: Section caption.
        annotate: Section annotate.
        judges: Output of judges: who is asked; nothing is asked where there is none.
        tracking: Section tracking.
        code_version: Commit or version of the code; a cached result of another one is not used.
        captions: Output of caption.
        shard: Which share of the pairs to judge, from 0 on; -1 stands for all of them.
        shards: How many shares there are.
        preferences: Parquet: the pairs, and for each the probability that its first is better (0 to 1, null where
            there is no answer). Metadata: pairs, and how many have each status.
    """
    import os
    from pathlib import Path

    from laurel.components.step import RESPONSES, sections_of, step, written
    from laurel.stages import annotate as stage

    name, share = ("annotate", None) if shard < 0 else (f"annotate {shard}", (shard, shards))
    sections = sections_of(locals())
    with step(name, **sections) as given, written(preferences) as output:
        kept = os.environ.get(RESPONSES)
        place = Path(kept) if kept else None
        stage.run(**given, judges=judges, captions=Path(captions.path), output=output, shard=share, responses=place)
