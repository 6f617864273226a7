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
        branch: The arm, one of arms, and the seeds, some of agent.seeds.
        agents: files.zip, with a directory for each seed: weights (safetensors), learning curve over environment
            steps. Metadata: arms and seeds (counts), steps_each (environment steps of a training run).
    """
    from laurel.components.checkpoints import kept
    from laurel.components.step import places, responses, sections_of, step, written
    from laurel.stages import train_agents as stage
    from laurel.stages.merge_agents import Branch

    sections = sections_of(locals())
    mine = Branch.read(branch)
    inputs = places(captions=captions, preferences=preferences, reward=model)
    name = f"train-agents {mine}"
    with (
        step(name, **sections) as given,
        kept(agents, name, sections, [*inputs.values()]) as checkpoints,
        written(agents, packed=True) as output,
        checkpoints(output),
    ):
        stage.run(**mine.narrow(given), **inputs, output=output, responses=responses(), branch=True)
