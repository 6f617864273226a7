"""train-reward: feedback → rewards, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train_reward(
    seed: int,
    env: dict[str, Any],
    caption: dict[str, Any],
    annotate: dict[str, Any],
    arms: list[dict[str, Any]],
    rewards: dict[str, Any],
    agent: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    trajectories: dsl.Input[dsl.Dataset],
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    model: dsl.Output[dsl.Model],
) -> None:
    """Make the rewards of all arms, those learned from preferences among them.

    Args:
        seed: All random numbers derive from it.
        env: Section env of params.yaml.
        caption: Section caption.
        annotate: Section annotate.
        arms: Section arms.
        rewards: Section rewards.
        agent: Section agent: the seeds that controls are drawn for.
        tracking: Section tracking.
        code_version: Commit or version of the code; a cached result of another one is not used.
        trajectories: Output of collect.
        captions: Output of caption.
        preferences: Output of annotate.
        model: A folder for each reward (weights, normaliser, the reward of every caption in standard deviations from
            the mean, quality.json), and rewards.json. Metadata: rewards and pairs (counts).
    """
    from pathlib import Path

    from laurel.components.step import responses, sections_of, step, written
    from laurel.stages import train_reward as stage

    sections = sections_of(locals())
    with step("train-reward", **sections) as given, written(model) as output:
        inputs: dict[str, Any] = {"captions": Path(captions.path), "preferences": Path(preferences.path)}
        stage.run(**given, trajectories=Path(trajectories.path), **inputs, output=output, responses=responses())
