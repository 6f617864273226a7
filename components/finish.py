"""finish: closes the run in MLflow, however the pipeline ended. Its exit handler."""

from typing import Any

from kfp import dsl

from laurel.components import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def finish(
    env: dict[str, Any],
    tracking: dict[str, Any],
    run: str,
    job: str,
    status: dsl.PipelineTaskFinalStatus,
) -> None:
    """Mark the pipeline's run in MLflow as finished or failed, and put the runs of its steps below it.

    Args:
        run: Name of this run of the pipeline.
        job: Its id. Outputs of the run are in a folder of that name, on Vertex AI in one of the name of the run.
        status: State of the pipeline, and its error.
    """
    from laurel.components.step import step
    from laurel.tracking.pipeline import close_pipeline_run

    with step("finish", env=env, tracking=tracking) as given:
        failure = status.error_message or ""
        close_pipeline_run(**given, name=run, state=status.state, error=failure, folders=(run, job))
