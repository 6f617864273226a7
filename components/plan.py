"""plan: params → the branches of training. Checks the parameters before all else, and opens the run in MLflow."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def plan(
    env: dict[str, Any],
    collect: dict[str, Any],
    agent: dict[str, Any],
    tracking: dict[str, Any],
    code_version: str,
    run: str,
    collect_parts: int,
    seeds_per_step: int,
) -> list[dict[str, Any]]:
    """Check the parameters and divide the training of agents into branches.

    Args:
        env: Section env of params.yaml.
        collect: Section collect.
        agent: Section agent.
        tracking: Section tracking.
        code_version: Commit or version of the code.
        run: Name of this run of the pipeline.
        collect_parts: Parts of the collection that the graph was compiled with.
        seeds_per_step: Seeds of an arm that share a step; 0 stands for all.

    Returns:
        For each branch its arm and its seeds; at least one, and at most a hundred.
    """
    from laurel.components.step import step
    from laurel.stages.merge_agents import branches, check_plan
    from laurel.tracking_pipeline import open_pipeline_run

    with step("plan", env=env, collect=collect, agent=agent, tracking=tracking) as params:
        check_plan(params, collect_parts)
        planned = branches(params, seeds_per_step or None)
        open_pipeline_run(params, run, code_version)
        return [branch.write() for branch in planned]
