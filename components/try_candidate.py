"""try-candidate: reward model → the trial of one candidate of a sweep, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def try_candidate(
    seed: int,
    env: dict[str, Any],
    collect: dict[str, Any],
    caption: dict[str, Any],
    annotate: dict[str, Any],
    arms: list[dict[str, Any]],
    rewards: dict[str, Any],
    shaping: dict[str, Any],
    agent: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    sweep: str,
    candidate: str,
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    trial: dsl.Output[dsl.Dataset],
) -> None:
    """Train a candidate with every seed of the sweep, in parallel over the machine's cores, and score it.

    Args:
        seed: All random numbers derive from it.
        env: Section env of params.yaml.
        collect: Section collect; with it, parameters are whole when values are put into them.
        caption: Section caption.
        annotate: Section annotate.
        arms: Section arms.
        rewards: Section rewards.
        shaping: Section shaping.
        agent: Section agent.
        tracking: Section tracking.
        code_version: Commit or version of the code; a cached result of another one is not used.
        sweep: What is searched, as JSON: arm, seeds, steps, space.
        candidate: As JSON its number, and its values by the names of parameters. It is text, since numbers of KFP's
            structures are all floats.
        captions: Output of caption.
        preferences: Output of annotate.
        model: Output of train-reward.
        trial: The values and their score. Metadata: trials, complete, pruned and failed (counts).
    """
    import json
    from pathlib import Path

    from laurel.components.checkpoints import kept
    from laurel.components.step import sections_of, step, whole, written
    from laurel.params.search import Sweep
    from laurel.stages import try_candidate as stage

    sections = sections_of(locals())
    mine = json.loads(candidate)
    inputs: dict[str, Any] = {
        "captions": Path(captions.path),
        "preferences": Path(preferences.path),
        "reward": Path(model.path),
    }
    name = f"try-candidate {mine['number']}"
    with (
        step(name, **sections) as given,
        written(trial) as output,
        kept(output, trial, name, {**sections, "sweep": sweep, "candidate": candidate}, [*inputs.values()]),
    ):
        stage.run(
            whole(given),
            **inputs,
            output=output,
            sweep=Sweep.read(json.loads(sweep)),
            number=mine["number"],
            values=mine["values"],
        )
