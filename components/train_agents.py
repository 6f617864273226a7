"""train-agents: reward model → the agents of one arm, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train_agents(
    params: dict[str, Any],
    code_version: str,
    arm: str,
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    reward: dsl.Input[dsl.Model],
    agents: dsl.Output[dsl.Model],
) -> None:
    """Train the agents of one arm with every seed, in parallel over the machine's cores.

    Args:
        params: The content of params.yaml; sections seed, env, caption, annotate, reward, shaping and agent are used.
        code_version: Commit or version of the code; a cached result of another one is not used.
        arm: Which reward to train on; one of agent.arms.
        captions: Output of caption.
        preferences: Output of annotate.
        reward: Output of train-reward.
        agents: A directory for each seed: weights (safetensors), learning curve over environment steps. Metadata:
            arms and seeds (counts), steps_each (environment steps of a training run).
    """
    from pathlib import Path

    from laurel.components.step import describe, step
    from laurel.stages import train_agents as stage
    from laurel.stages.merge_agents import narrow

    with step(f"train-agents {arm}", params) as checked:
        stage.run(
            narrow(checked, arm),
            Path(captions.path),
            Path(preferences.path),
            Path(reward.path),
            output=Path(agents.path),
        )
        describe(agents)
