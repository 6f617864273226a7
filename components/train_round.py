"""train-round: proposals that were sampled apart → an agent one round further, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train_round(
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
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    agents: dsl.Output[dsl.Model],
    begun: dsl.Input[dsl.Model] = None,
    proposals: dsl.Input[list[dsl.Dataset]] = None,
) -> None:
    """Train a language-model actor up to the end of a round.

    Args:
        branch: The arm, one of arms, and its seed.
        round_number: Number of the round, counted from 1.
        begun: Output of the round before; without it, all rounds up to this one are trained, and sampled here.
        proposals: Outputs of propose for this round, one a shard.
        agents: files.zip, with a directory for the seed: weights (safetensors), learning curve over environment
            steps. Metadata: arms and seeds (counts), steps_each (environment steps of a training run).
    """
    from pathlib import Path

    from laurel.components.checkpoints import kept
    from laurel.components.step import places, responses, sections_of, step, unpacked, written
    from laurel.stages import train_agents as stage
    from laurel.stages.merge_agents import Branch
    from laurel.training.arms import Part

    sections = sections_of(locals())
    mine = Branch.read(branch)
    inputs = places(captions=captions, preferences=preferences, reward=model)
    name = f"train-round {mine} round {round_number}"
    with (
        step(name, **sections) as given,
        unpacked([begun] if begun else []) as before,
        kept(agents, name, sections, [*inputs.values(), *before]) as checkpoints,
        written(agents, packed=True) as output,
        checkpoints(output),
    ):
        part = Part(round_number, before[0] if before else None, [Path(proposal.path) for proposal in proposals or []])
        stage.run(**mine.narrow(given), **inputs, output=output, responses=responses(), branch=True, part=part)
