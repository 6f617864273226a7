"""collect: policies → trajectories. Lets policies act in many environments at once and keeps every step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.params import Params

if TYPE_CHECKING:
    from laurel.agents.behaviour import Behaviour
    from laurel.envs.base import Room


def run(params: Params, output: Path) -> None:
    """Collect exactly `collect.steps` transitions.

    Resets are no transitions. In the last step, environments beyond the count are left out. Episodes still
    running then are kept: neither flag is set on their last step.

    Args:
        params: sections seed, env and collect are used.
        output: directory to write shards of `laurel.data.trajectories` into.

    Raises:
        EnvError: the environment cannot be made, or its spaces are not supported.
        ParamsError: there are more policies than environments.
        DataError: a policy's checkpoint cannot be used, or the output cannot be written.
    """
    from contextlib import closing

    from laurel.agents.behaviour import Behaviour, collect_steps
    from laurel.data.directory import output_directory
    from laurel.data.trajectories import TrajectoryWriter, trajectory_schema
    from laurel.envs import room_for
    from laurel.envs.vector import make_vector
    from laurel.progress import progress
    from laurel.seeding import derive_seed
    from laurel.tracking import Tracker

    collect = params.collect
    if any(policy.kind != "random" for policy in collect.policies):
        import torch

        torch.set_num_threads(1)  # the same sums in the same order, wherever this runs
    room = room_for(params.env)
    behaviour = Behaviour(collect.policies, room, collect.n_envs, derive_seed(params.seed, "collect", "policies"))
    seed = derive_seed(params.seed, "collect", "envs")
    schema = trajectory_schema(room.observation_dtype, room.observation_size, *behaviour.uniform.action_shape)
    with (
        output_directory(output, stage="collect", params=params.dump("seed", "env", "collect")) as out,
        closing(make_vector(params.env, room, collect.n_envs, seed)) as envs,
    ):
        metadata = _metadata(params, room, envs.backend, seed, behaviour)
        with (
            TrajectoryWriter(out.path, schema, metadata, collect.shard_steps) as writer,
            progress(collect.steps, "collect", "steps") as advance,
        ):
            unfinished = collect_steps(envs, behaviour, collect.steps, writer.write, advance)
        out.counts = {
            "transitions": collect.steps,
            "episodes": writer.episodes,
            "unfinished_episodes": unfinished,
            "shards": writer.shards,
        }
        with Tracker(params, "collect", {}, out).stage_run() as tracked:
            if tracked:
                tracked.log_metrics({key: float(value) for key, value in out.counts.items()})


def _metadata(params: Params, room: Room, backend: str, seed: int, behaviour: Behaviour) -> dict[str, Any]:
    """Say in every shard what is needed to understand it without this run's files."""
    from laurel import __version__

    policies = [
        {**policy.model_dump(mode="json"), "digest": digest, "n_envs": int((behaviour.assignment == index).sum())}
        for index, (policy, digest) in enumerate(zip(params.collect.policies, behaviour.digests, strict=True))
    ]
    return {
        "laurel_version": __version__,
        "env": params.env.model_dump(mode="json"),
        "backend": backend,
        "seed": seed,
        "policies": policies,
        "observation": {
            "room": type(room).__name__,
            "dtype": str(room.observation_dtype),
            "size": room.observation_size,
            "space": str(room.packed.space),
        },
    }
