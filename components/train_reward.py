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
        agent: Section agent: the seeds that controls are drawn for.
        model: A folder for each reward (weights, normaliser, the reward of every caption in standard deviations from
            the mean, quality.json), and rewards.json. Metadata: rewards and pairs (counts).
    """
    from laurel.components.step import places, responses, sections_of, step, written
    from laurel.stages import train_reward as stage

    sections = sections_of(locals())
    with step("train-reward", **sections) as given, written(model) as output:
        inputs = places(trajectories=trajectories, captions=captions, preferences=preferences)
        stage.run(**given, **inputs, output=output, responses=responses())
