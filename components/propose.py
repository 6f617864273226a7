"""propose: an agent's checkpoint → a shard of its next round's proposals, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def propose(
    seed: int,
    env: dict[str, Any],
    caption: dict[str, Any],
    annotate: dict[str, Any],
    arms: list[dict[str, Any]],
    rewards: dict[str, Any],
    shaping: dict[str, Any],
    agent: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    branch: dict[str, Any],
    round_number: int,
    shard: int,
    begun: dsl.Input[dsl.Model],
    proposals: dsl.Output[dsl.Dataset],
) -> None:
    """Sample one shard of the proposals that a language-model actor's next round learns from.

    Args:
        branch: The arm, one of arms, and its seed.
        round_number: Number of the round, counted from 1.
        shard: Number of the shard, counted from 0.
        begun: Output of train-round for the round before.
        proposals: Actions (safetensors), prompts and answers (JSON). Metadata: proposals and tokens (counts).
    """
    from laurel.components.step import sections_of, step, unpacked, written
    from laurel.stages import propose as stage
    from laurel.stages.merge_agents import Branch

    mine = Branch.read(branch)
    with (
        step(f"propose {mine} round {round_number} shard {shard}", **sections_of(locals())) as given,
        unpacked([begun]) as (place,),
        written(proposals) as output,
    ):
        stage.run(**mine.narrow(given), begun=place, output=output, shard=shard)
