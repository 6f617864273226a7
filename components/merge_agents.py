"""merge-agents: the agents of each arm → the agents of all arms, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def merge_agents(
    params: dict[str, Any],
    code_version: str,
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    reward: dsl.Input[dsl.Model],
    shards: dsl.Input[list[dsl.Model]],
    agents: dsl.Output[dsl.Model],
) -> None:
    """Join the agents that were trained apart, one arm each, into what training them together gives.

    Args:
        params: The content of params.yaml; sections seed, env, caption, annotate, reward, shaping and agent are used.
        code_version: Commit or version of the code; a cached result of another one is not used.
        captions: Output of caption; the agents must come from it.
        preferences: Output of annotate; the agents must come from it.
        reward: Output of train-reward; the agents must come from it.
        shards: Outputs of train-agents, one an arm.
        agents: A directory for each arm and seed. Metadata: arms and seeds (counts), steps_each (environment steps
            of a training run).
    """
    from pathlib import Path

    from laurel.components.step import describe, step
    from laurel.stages import merge_agents as stage

    with step("merge-agents", params) as checked:
        stage.run(
            checked,
            Path(captions.path),
            Path(preferences.path),
            Path(reward.path),
            [Path(shard.path) for shard in shards],
            output=Path(agents.path),
        )
        describe(agents)
