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
        collect: Section collect; with it, parameters are whole when values are put into them.
        sweep: What is searched, as JSON: arm, seeds, steps, space.
        candidate: As JSON its number, and its values by the names of parameters. It is text, since numbers of KFP's
            structures are all floats.
        trial: The values and their score. Metadata: trials, complete, pruned and failed (counts).
    """
    import json

    from laurel.components.checkpoints import kept
    from laurel.components.step import places, sections_of, step, whole, written
    from laurel.params.search import Sweep
    from laurel.stages import try_candidate as stage

    sections = sections_of(locals())
    mine = json.loads(candidate)
    inputs = places(captions=captions, preferences=preferences, reward=model)
    name = f"try-candidate {mine['number']}"
    with (
        step(name, **sections) as given,
        kept(trial, name, {**sections, "sweep": sweep, "candidate": candidate}, [*inputs.values()]) as checkpoints,
        written(trial) as output,
        checkpoints(output),
    ):
        stage.run(
            whole(given),
            **inputs,
            output=output,
            sweep=Sweep.read(json.loads(sweep)),
            number=mine["number"],
            values=mine["values"],
        )
