"""MLflow: the runs of stages, agents and pipelines."""
