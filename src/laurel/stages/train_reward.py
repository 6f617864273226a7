"""train-reward: preferences → reward model. Fits a Bradley-Terry ensemble and says how far it can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.params import Params

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laurel.tracking.runs import Run


def run(params: Params, trajectories: Path, captions: Path, preferences: Path, output: Path) -> None:
    """Train the reward model.

    Args:
        params: sections env, caption and reward are used.
        trajectories: output of the collect stage: observations, and the environment's reward as a baseline.
        captions: output of the caption stage.
        preferences: output of the annotate stage.
        output: directory to write the artefact of `laurel.rewards.model` and quality.json into.

    Raises:
        ParamsError: reward.input and caption.segment_length do not go together.
        DataError: an input is missing or damaged, or does not go with the others.
    """
    import torch

    from laurel.data.directory import output_directory, write_json
    from laurel.data.lineage import read_inputs
    from laurel.envs import adapter_for
    from laurel.rewards.training import train_reward_model
    from laurel.tracking.runs import Tracker

    torch.set_num_threads(1)  # the same sums in the same order, wherever this runs
    used = params.dump("seed", "env", "caption", "reward")
    inputs = {"trajectories": trajectories, "captions": captions, "preferences": preferences}
    read_inputs(used, inputs)
    with output_directory(output, stage="train-reward", params=used, inputs=inputs) as out:
        adapter = adapter_for(params.env, with_action=params.caption.with_action)
        model, quality = train_reward_model(params, adapter, trajectories, captions, preferences)
        model.save(out.path)
        write_json(out.path / "quality.json", quality)
        out.counts = {"captions": len(model.texts), "pairs": quality["pairs"], "epochs": model.epochs}
        with Tracker(params, "train-reward", inputs, out).stage_run() as tracked:
            if tracked:
                track(tracked, params, quality, out.path)


def track(run: Run, params: Params, quality: Mapping[str, Any], path: Path) -> None:
    """Log how good the model is, and register it."""
    from laurel.tracking.runs import flatten

    run.log_metrics({k: v for k, v in flatten(quality).items() if isinstance(v, int | float)})
    source = run.log_directory(path, "reward")
    if params.tracking.register_models:
        run.register(f"reward.{params.env.id}", source, {"annotator": params.annotate.annotator})
