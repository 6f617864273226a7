"""train-agents: reward model → the agents of one branch, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train_agents(
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
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    agents: dsl.Output[dsl.Model],
) -> None:
    """Train the agents of one arm with some seeds, in parallel over the machine's cores, and with a judge beside them.

    Args:
        seed: All random numbers derive from it.
        env: Section env of params.yaml.
        caption: Section caption.
        annotate: Section annotate.
        arms: Section arms.
        rewards: Section rewards.
        shaping: Section shaping.
        agent: Section agent.
        tracking: Section tracking.
        code_version: Commit or version of the code; a cached result of another one is not used.
        branch: The arm, one of arms, and the seeds, some of agent.seeds.
        captions: Output of caption.
        preferences: Output of annotate.
        model: Output of train-reward.
        agents: files.zip, with a directory for each seed: weights (safetensors), learning curve over environment
            steps. Metadata: arms and seeds (counts), steps_each (environment steps of a training run).
    """
    from pathlib import Path

    from laurel.components.checkpoints import kept
    from laurel.components.step import responses, sections_of, step, written
    from laurel.stages import train_agents as stage
    from laurel.stages.merge_agents import Branch

    sections = sections_of(locals())
    mine = Branch.read(branch)
    inputs: dict[str, Any] = {
        "captions": Path(captions.path),
        "preferences": Path(preferences.path),
        "reward": Path(model.path),
    }
    name = f"train-agents {mine}"
    with (
        step(name, **sections) as given,
        written(agents, packed=True) as output,
        kept(output, agents, name, sections, [*inputs.values()]),
    ):
        stage.run(**mine.narrow(given), **inputs, output=output, responses=responses(), branch=True)
