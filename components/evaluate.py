"""evaluate: agents → report, as a component."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def evaluate(
    params: dict[str, Any],
    code_version: str,
    trajectories: dsl.Input[dsl.Dataset],
    captions: dsl.Input[dsl.Dataset],
    preferences: dsl.Input[dsl.Dataset],
    reward: dsl.Input[dsl.Model],
    agents: dsl.Input[dsl.Model],
    reports: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    table: dsl.Output[dsl.Markdown],
) -> None:
    """Play fresh episodes with every agent, compare the arms, write the report.

    Args:
        params: The content of params.yaml; all sections are shown, most are used.
        code_version: Commit or version of the code; a cached result of another one is not used.
        trajectories: Output of collect.
        captions: Output of caption.
        preferences: Output of annotate.
        reward: Output of train-reward.
        agents: Output of merge-agents.
        reports: The stage's whole output: metrics.json, results.parquet, report.html, figures and more. Metadata:
            arms, agents and episodes (counts).
        metrics: For each arm the interquartile mean over seeds of the return (the environment's own reward, summed
            over an episode) and of the success rate (0 to 1) where success is defined. The file is metrics.json.
        report: The report, one file.
        table: The table of arms.
    """
    import json
    import shutil
    from pathlib import Path

    from laurel.components.step import describe, step
    from laurel.evaluation.summary import markdown_table
    from laurel.stages import evaluate as stage

    with step("evaluate", params) as checked:
        output = Path(reports.path)
        stage.run(
            checked,
            Path(trajectories.path),
            Path(captions.path),
            Path(preferences.path),
            Path(reward.path),
            Path(agents.path),
            output=output,
        )
        describe(reports)
        content = json.loads((output / stage.METRICS).read_text(encoding="utf-8"))
        for arm, results in content["arms"].items():
            for measure in ("return", "success"):
                if results[measure]:
                    metrics.log_metric(f"{arm}.{measure}_iqm", results[measure]["iqm"])
        shutil.copyfile(output / stage.METRICS, metrics.path)
        shutil.copyfile(output / stage.REPORT, report.path)
        Path(table.path).write_text(markdown_table(content) + "\n", encoding="utf-8")
