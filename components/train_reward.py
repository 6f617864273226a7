"""train-reward: preferences → reward model, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train_reward(
    seed: int,
    env: dict[str, Any],
    caption: dict[str, Any],
    reward: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    trajectories: dsl.Input[dsl.Dataset],
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
) -> None:
    """Fit a reward model to the preferences.

    Args:
        seed: All random numbers derive from it.
        env: Section env of params.yaml.
        caption: Section caption.
        reward: Section reward.
        tracking: Section tracking.
        code_version: Commit or version of the code; a cached result of another one is not used.
        trajectories: Output of collect.
        captions: Output of caption.
        preferences: Output of annotate.
        model: Weights (safetensors), normaliser, the reward of every caption (standard deviations from the mean),
            and quality.json. Metadata: captions, pairs and epochs (counts).
    """
    from pathlib import Path

    from laurel.components.step import step, whole, written
    from laurel.stages import train_reward as stage

    sections = {"seed": seed, "env": env, "caption": caption, "reward": reward, "tracking": tracking}
    with step("train-reward", **sections) as given, written(model) as output:
        stage.run(whole(given), Path(trajectories.path), Path(captions.path), Path(preferences.path), output=output)
