"""evaluate: agents → report, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def evaluate(
    seed: int,
    env: dict[str, Any],
    collect: dict[str, Any],
    caption: dict[str, Any],
    annotate: dict[str, Any],
    arms: list[dict[str, Any]],
    rewards: dict[str, Any],
    shaping: dict[str, Any],
    agent: dict[str, Any],
    evaluate: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    trajectories: dsl.Input[dsl.Dataset],
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    model: dsl.Input[dsl.Model],
    agents: dsl.Input[dsl.Model],
    reports: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    table: dsl.Output[dsl.Markdown],
) -> None:
    """Play fresh episodes with every agent, compare the arms, write the report.

    Args:
        collect: Section collect; shown in the report.
        arms: Section arms; shown in the report.
        rewards: Section rewards; shown in the report.
        reports: The stage's whole output: metrics.json, results.parquet, report.html, figures and more. Metadata:
            arms, agents and episodes (counts).
        metrics: For each arm the mean over seeds of the return (the environment's own reward, summed
            over an episode) and of the success rate (0 to 1) where success is defined. The file is metrics.json.
        report: The report, one file.
        table: The table of arms.
    """
    import shutil
    from pathlib import Path

    from laurel.components.step import places, responses, sections_of, step, unpacked, written
    from laurel.evaluation.summary import METRICS, REPORT, markdown_table, read_metrics
    from laurel.stages import evaluate as stage

    sections = sections_of(locals())
    inputs = places(trajectories=trajectories, captions=captions, preferences=preferences, reward=model)
    with step("evaluate", **sections) as given, unpacked([agents]) as (trained,):
        with written(reports) as output:
            stage.run(**given, **inputs, agents=trained, output=output, responses=responses())
        made = Path(reports.path)
        content = read_metrics(made / METRICS)
        for arm, results in content["arms"].items():
            for measure in ("return", "success"):
                if results[measure]:
                    metrics.log_metric(f"{arm}.{measure}", results[measure]["mean"])
        shutil.copyfile(made / METRICS, metrics.path)
        shutil.copyfile(made / REPORT, report.path)
        Path(table.path).write_text(markdown_table(content) + "\n", encoding="utf-8")
