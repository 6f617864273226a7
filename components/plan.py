"""plan: params → the arms to train, each a branch of the pipeline. Checks the parameters before all else."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def plan(params: dict[str, Any], code_version: str) -> list[str]:
    """Check the parameters and list the arms whose agents are trained, one branch each.

    Args:
        params: The content of params.yaml; section agent is used.
        code_version: Commit or version of the code; a cached result of another one is not used.

    Returns:
        Names of arms, at least one and at most eight.
    """
    from laurel.components.step import step
    from laurel.stages.merge_agents import arms_to_train

    with step("plan", params) as checked:
        return arms_to_train(checked)
