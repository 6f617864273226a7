"""train-reward: feedback → rewards. Makes the reward of every arm; learned ones say how far they can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from laurel.params import Params

if TYPE_CHECKING:
    from laurel.data.directory import Output
    from laurel.envs.base import EnvAdapter
    from laurel.rewards.method import Inputs
    from laurel.tracking.runs import Run


def run(params: Params, trajectories: Path, captions: Path, preferences: Path, output: Path) -> None:
    """Make the rewards that arms are paid, and those that these are made from.

    Args:
        params: sections seed, env, caption, annotate, arms, rewards and agent.seeds are used.
        trajectories: output of the collect stage: observations, and the environment's reward as a baseline.
        captions: output of the caption stage.
        preferences: output of the annotate stage.
        output: directory to write rewards as `laurel.rewards.stored` has them.

    Raises:
        ParamsError: a reward and caption.segment_length do not go together.
        DataError: an input is missing or damaged, or does not go with the others.
        WorkerError: a process that made a reward died.
    """
    import torch

    from laurel.data.directory import output_directory
    from laurel.data.lineage import read_inputs
    from laurel.envs import adapter_for
    from laurel.rewards.method import Inputs
    from laurel.tracking.runs import Tracker

    torch.set_num_threads(1)  # the same sums in the same order, wherever this runs
    used = params.used("seed", "env", "caption", "annotate", "rewards")
    inputs = {"trajectories": trajectories, "captions": captions, "preferences": preferences}
    read_inputs(used, inputs)
    with output_directory(output, stage="train-reward", params=used, inputs=inputs) as out:
        adapter = adapter_for(params.env, with_action=params.caption.with_action)
        _make(params, Inputs(captions, preferences, out.path, trajectories), adapter, out)
        with Tracker(params, "train-reward", inputs, out).stage_run() as tracked:
            if tracked:
                track(tracked, params, out.path)


def _make(params: Params, inputs: Inputs, adapter: EnvAdapter, out: Output) -> None:
    """Make the rewards of all arms but those that are left out; those drawn anew for each seed side by side."""
    from laurel.data.directory import read_json
    from laurel.params.rewards import RewardParams, chain, method_of
    from laurel.pool import Job, run_jobs
    from laurel.progress import progress
    from laurel.rewards.arms import trained_arms
    from laurel.rewards.method import QUALITY
    from laurel.rewards.stored import StoredRewards, make_reward

    trained = trained_arms(params, adapter)
    wanted = [name for arm in params.arms if arm.name in trained for name in sorted(arm.reward)]
    made: dict[str, tuple[RewardParams, tuple[int, ...] | None]] = {}
    jobs = []
    for name in chain(params.rewards, wanted):
        settings = params.rewards[name]
        method = method_of(settings)
        made[name] = settings, params.agent.seeds if method.per_seed else None
        if not method.per_seed:
            (out.path / name).mkdir()
            method.fit(settings, params, inputs, adapter, params.seed, out.path / name)
            continue
        jobs += [
            Job(f"{name} seed {seed}", make_reward, (params, name, seed, inputs, out.path / name / f"seed-{seed}"))
            for seed in params.agent.seeds
        ]
    if jobs:
        with progress(len(jobs), "train-reward: controls", "rewards") as advance:
            run_jobs(jobs, params.agent.workers, advance, ["laurel.rewards.stored", "laurel.rewards.training"])
    StoredRewards.write(out.path, made)
    out.counts = {"rewards": len(made)}
    for name in made:
        if (out.path / name / QUALITY).exists():
            out.counts |= {"pairs": read_json(out.path / name / QUALITY).get("pairs", 0)}
            break
    if not made:
        out.notes.append("No arm is paid a reward besides the environment's, so none was made.")


def track(run: Run, params: Params, path: Path) -> None:
    """Log how good each learned reward is, and register those that were learned."""
    from laurel.data.directory import read_json
    from laurel.rewards.method import QUALITY
    from laurel.rewards.stored import StoredRewards
    from laurel.tracking.runs import flatten

    places = {name: path / name for name in StoredRewards.read(path).settings if (path / name / QUALITY).exists()}
    for name, place in places.items():
        begin = "" if len(places) == 1 else f"{name}."
        quality = flatten(read_json(place / QUALITY))
        run.log_metrics({f"{begin}{k}": v for k, v in quality.items() if isinstance(v, int | float)})
        source = run.log_directory(place, "reward" if len(places) == 1 else f"reward/{name}")
        if params.tracking.register_models:
            run.register(f"reward.{params.env.id}", source, {"annotator": params.annotate.annotator, "reward": name})
