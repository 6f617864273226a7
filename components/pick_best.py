"""pick-best: the trials of a sweep → the best parameters, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def pick_best(
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
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    shards: dsl.Input[list[dsl.Dataset]],
    study: dsl.Output[dsl.Artifact],
    best: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
) -> None:
    """Compare the candidates of a sweep, and write the parameters of the best.

    Args:
        collect: Section collect; with it, parameters are whole when values are put into them.
        sweep: What is searched, as JSON: arm, seeds, steps, space.
        shards: Outputs of try-candidate, one a candidate.
        study: best.yaml, trials.csv, figures and more. Metadata: trials, complete, pruned and failed (counts).
        best: The file best.yaml.
        metrics: Score and values of the best candidate, as far as they are numbers.
    """
    import json
    import shutil
    from pathlib import Path

    from laurel.components.step import places, sections_of, step, whole, written
    from laurel.params.search import Sweep
    from laurel.stages import pick_best as stage
    from laurel.tuning import results, trials

    sections = sections_of(locals())
    inputs = places(captions=captions, preferences=preferences, reward=model)
    with step("pick-best", **sections) as given:
        with written(study) as output:
            stage.run(
                whole(given),
                **inputs,
                shards=[Path(shard.path) for shard in shards],
                output=output,
                sweep=Sweep.read(json.loads(sweep)),
            )
        made = Path(study.path)
        shutil.copyfile(made / results.BEST, best.path)
        chosen = trials.best(trials.read_trials(made / trials.TRIALS))
        for name, value in {"score": chosen.score, **chosen.values}.items():
            if isinstance(value, int | float):
                metrics.log_metric(name, value)
