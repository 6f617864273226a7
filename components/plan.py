"""plan: params → the branches of training. Checks the whole run before all else, and opens the run in MLflow."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def plan(
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
    run: str,
    collect_parts: int,
    seeds_per_step: int,
    rounds: str = "",
) -> list[dict[str, Any]]:
    """Check the whole run, before any other step starts, and divide the training of agents into branches.

    Args:
        run: Name of this run of the pipeline.
        collect_parts: Parts of the collection that the graph was compiled with.
        seeds_per_step: Seeds of an arm that share a step; 0 stands for all.
        rounds: As JSON the agents whose rounds the graph was compiled with, for shards of proposals; empty: none.

    Returns:
        For each branch its arm and its seeds; at most a hundred, and at least one unless all agents are of rounds.
    """
    from laurel.components.step import sections_of, step, whole
    from laurel.stages.preflight import check_parts, check_run
    from laurel.stages.proposal_rounds import branches_beside
    from laurel.tracking.pipeline import open_pipeline_run

    sections = sections_of(locals())
    with step("plan", **sections) as given:
        params = whole(given)
        check_parts(params, collect_parts)
        check_run(params)
        planned = branches_beside(params, rounds, seeds_per_step)
        open_pipeline_run(params.env, params.tracking, run, code_version)
        return [branch.write() for branch in planned]
