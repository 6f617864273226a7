"""train-reward: preferences → reward model, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train_reward(
    params: dict[str, Any],
    code_version: str,
    trajectories: dsl.Input[dsl.Dataset],
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    reward: dsl.Output[dsl.Model],
) -> None:
    """Fit a reward model to the preferences.

    Args:
        params: The content of params.yaml; sections env, caption and reward are used.
        code_version: Commit or version of the code; a cached result of another one is not used.
        trajectories: Output of collect.
        captions: Output of caption.
        preferences: Output of annotate.
        reward: Weights (safetensors), normaliser, the reward of every caption (standard deviations from the mean),
            and quality.json. Metadata: captions, pairs and epochs (counts).
    """
    from pathlib import Path

    from laurel.components.step import describe, step
    from laurel.stages import train_reward as stage

    with step("train-reward", params) as checked:
        stage.run(
            checked, Path(trajectories.path), Path(captions.path), Path(preferences.path), output=Path(reward.path)
        )
        describe(reward)
