"""collect: policies → trajectories. Lets policies act in many environments at once and keeps every step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.errors import ParamsError
from laurel.params import Params

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laurel.agents.behaviour import Behaviour
    from laurel.envs.base import Room
    from laurel.tracking import Run


STAGE, PART = "collect", "collect-part"


def run(params: Params, output: Path, part: int | None = None) -> None:
    """Collect exactly `collect.steps` transitions, in `collect.parts` independent parts.

    Resets are no transitions. In a part's last step, environments beyond the count are left out. Episodes still
    running then are kept: neither flag is set on their last step.

    Args:
        params: sections seed, env and collect are used.
        output: directory to write shards of `laurel.data.trajectories` into.
        part: collect this one alone, from 0 on; `merge_trajectories` joins them. None collects all.

    Raises:
        EnvError: the environment cannot be made, or its spaces are not supported.
        ParamsError: there are more policies than environments, or more parts than steps.
        DataError: a policy's checkpoint cannot be used, or the output cannot be written.
    """
    import shutil

    from laurel.data.directory import output_directory
    from laurel.data.trajectories import join_trajectories
    from laurel.progress import progress
    from laurel.tracking import Tracker

    parts = params.collect.parts
    if parts > params.collect.steps:
        raise ParamsError(f"collect.parts is {parts}, but there are only {params.collect.steps} steps (collect.steps).")
    used = params.dump("seed", "env", "collect")
    stage = STAGE if part is None else PART
    with output_directory(output, stage=stage, params=used if part is None else {**used, "part": part}) as out:
        numbers = [part] if part is not None else list(range(parts))
        with progress(sum(steps_of(params, number) for number in numbers), "collect", "steps") as advance:
            if len(numbers) == 1:
                out.counts = dict(_collect(params, numbers[0], out.path, advance))
            else:
                made = [(out.path / f".part-{number}", number) for number in numbers]
                counts = [(place, _collect(params, number, place, advance)) for place, number in made]
                out.counts = dict(join_trajectories(counts, out.path))
                for place, _ in made:
                    shutil.rmtree(place)
        with Tracker(params, STAGE, {}, out).stage_run() as tracked:
            if tracked:
                track(tracked, out.counts)


def track(run: Run, counts: Mapping[str, Any]) -> None:
    """Log what was collected."""
    run.log_metrics({key: float(value) for key, value in counts.items()})


def steps_of(params: Params, part: int) -> int:
    """Return how many transitions a part collects."""
    whole, rest = divmod(params.collect.steps, params.collect.parts)
    return whole + (part < rest)


def _collect(params: Params, part: int, path: Path, advance: Callable[[int], None]) -> dict[str, int]:
    """Collect one part into a directory; return its counts."""
    from contextlib import closing

    from laurel.agents.behaviour import Behaviour, collect_steps
    from laurel.data.trajectories import TrajectoryWriter, trajectory_schema
    from laurel.envs import room_for
    from laurel.envs.vector import make_vector
    from laurel.seeding import derive_seed

    collect = params.collect
    if any(policy.kind != "random" for policy in collect.policies):
        import torch

        torch.set_num_threads(1)  # the same sums in the same order, wherever this runs
    path.mkdir(exist_ok=True)
    which = [str(part)] if part else []  # the first draws what a whole collection draws
    room = room_for(params.env)
    policies_seed = derive_seed(params.seed, "collect", "policies", *which)
    behaviour = Behaviour(collect.policies, room, collect.n_envs, policies_seed)
    seed = derive_seed(params.seed, "collect", "envs", *which)
    schema = trajectory_schema(room.observation_dtype, room.observation_size, *behaviour.uniform.action_shape)
    steps = steps_of(params, part)
    with closing(make_vector(params.env, room, collect.n_envs, seed)) as envs:
        metadata = _metadata(params, room, envs.backend, seed, behaviour)
        with TrajectoryWriter(path, schema, metadata, collect.shard_steps) as writer:
            unfinished = collect_steps(envs, behaviour, steps, writer.write, advance)
    return {
        "transitions": steps,
        "episodes": writer.episodes,
        "unfinished_episodes": unfinished,
        "shards": writer.shards,
    }


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
