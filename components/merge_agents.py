"""merge-agents: the agents of each branch → the agents of all arms and seeds, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def merge_agents(
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
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    shards: dsl.Input[list[dsl.Model]],
    agents: dsl.Output[dsl.Model],
    rounds: dsl.Input[list[dsl.Model]] = None,
) -> None:
    """Join agents that were trained apart; the result is as if they had been trained together.

    Args:
        captions: Output of caption; the agents must come from it.
        preferences: Output of annotate; the agents must come from it.
        model: Output of train-reward; the agents must come from it.
        shards: Outputs of train-agents, one a branch.
        rounds: Outputs of train-round after the last round, one an agent that is of no branch.
        agents: files.zip, with a directory for each arm and seed. Metadata: arms and seeds (counts), steps_each
            (environment steps of a training run).
    """
    from laurel.components.step import places, sections_of, step, unpacked, written
    from laurel.stages import merge_agents as stage

    sections = sections_of(locals())
    inputs = places(captions=captions, preferences=preferences, reward=model)
    with (
        step("merge-agents", **sections) as given,
        unpacked([*shards, *(rounds or [])]) as branches,
        written(agents, packed=True) as output,
    ):
        stage.run(**given, **inputs, shards=branches, output=output)
