"""collect: policies → trajectories. Lets policies act in many environments at once and keeps every step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.params import CollectParams, EnvParams, TrackingParams
from laurel.params.fields import dumped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laurel.agents.behaviour import Behaviour
    from laurel.envs.base import EnvAdapter
    from laurel.tracking.runs import Run


STAGE = "collect"
ENVS_PER_THREAD = 16
"""Fewer are stepped sooner than a thread is woken."""


def run(seed: int, env: EnvParams, collect: CollectParams, tracking: TrackingParams, output: Path) -> None:
    """Collect exactly `collect.steps` transitions.

    Resets are no transitions. In the last step, environments beyond the count are left out. Episodes still
    running then are kept: neither flag is set on their last step.

    Args:
        seed: all random numbers derive from it.
        env: what is stepped.
        collect: by which policies, and how often.
        tracking: whether and where the run is logged.
        output: directory to write shards of `laurel.data.trajectories` into.

    Raises:
        EnvError: the environment cannot be made, or its spaces are not supported.
        ParamsError: there are more policies than environments.
        DataError: a policy's checkpoint cannot be used, or the output cannot be written.
    """
    from laurel.data.directory import output_directory
    from laurel.progress import progress
    from laurel.tracking.runs import Tracker

    sections = {"seed": seed, "env": env, "collect": collect}
    collector = _Collector.of(seed, env, collect)  # refuses before anything is made
    with output_directory(output, stage=STAGE, params=dumped(sections)) as out:
        with progress(collect.steps, "collect", "steps") as advance:
            out.counts = dict(collector.collect(out.path, advance))
        with Tracker({**sections, "tracking": tracking}, STAGE, {}, out).stage_run() as tracked:
            if tracked:
                track(tracked, out.counts)


def track(run: Run, counts: Mapping[str, Any]) -> None:
    """Log what was collected."""
    run.log_metrics({key: float(value) for key, value in counts.items()})


@dataclass(frozen=True)
class _Collector:
    """Steps the environments and writes what happens."""

    env: EnvParams
    params: CollectParams
    adapter: EnvAdapter
    behaviour: Behaviour
    seed: int
    """Of the environments."""

    @staticmethod
    def of(run_seed: int, env: EnvParams, params: CollectParams) -> _Collector:
        from laurel.agents.behaviour import Behaviour
        from laurel.envs import adapter_for
        from laurel.seeding import derive_seed

        if any(policy.kind != "random" for policy in params.policies):
            import torch

            torch.set_num_threads(1)  # the same sums in the same order, wherever this runs
        policies_seed = derive_seed(run_seed, "collect", "policies")
        adapter = adapter_for(env)
        behaviour = Behaviour(params.policies, adapter, params.n_envs, policies_seed)
        return _Collector(env, params, adapter, behaviour, derive_seed(run_seed, "collect", "envs"))

    def collect(self, path: Path, advance: Callable[[int], None]) -> dict[str, int]:
        """Write shards into a directory; return what is in them."""
        from contextlib import closing

        from laurel.agents.behaviour import collect_steps
        from laurel.data.background import InBackground
        from laurel.data.trajectories import TrajectoryWriter, trajectory_schema
        from laurel.envs.vector import make_vector
        from laurel.pool import usable_cpus

        n_envs, adapter = self.params.n_envs, self.adapter
        action_shape = self.behaviour.uniform.action_shape
        action_size = action_shape[0] if action_shape else None
        layout = (adapter.observation_dtype, adapter.observation_size, action_size, adapter.info_fields)
        schema = trajectory_schema(*layout)
        threads = min(usable_cpus(), max(1, n_envs // ENVS_PER_THREAD))
        with closing(make_vector(self.env, adapter, n_envs, self.seed, threads=threads)) as envs:
            metadata = self._metadata(envs.backend)
            with (
                TrajectoryWriter(path, schema, metadata, self.params.shard_steps) as writer,
                InBackground(writer.write) as write,
            ):
                unfinished = collect_steps(envs, self.behaviour, self.params.steps, write, advance)
        return {
            "transitions": self.params.steps,
            "episodes": writer.episodes,
            "unfinished_episodes": unfinished,
            "shards": writer.shards,
        }

    def _metadata(self, backend: str) -> dict[str, Any]:
        """Say in every shard what is needed to understand it without this run's files."""
        from laurel import __version__

        adapter, behaviour = self.adapter, self.behaviour
        policies = [
            {**policy.model_dump(mode="json"), "digest": digest, "n_envs": int((behaviour.assignment == index).sum())}
            for index, (policy, digest) in enumerate(zip(self.params.policies, behaviour.digests, strict=True))
        ]
        return {
            "laurel_version": __version__,
            "env": self.env.model_dump(mode="json"),
            "backend": backend,
            "seed": self.seed,
            "policies": policies,
            "observation": {
                "adapter": type(adapter).__name__,
                "dtype": str(adapter.observation_dtype),
                "size": adapter.observation_size,
                "space": str(adapter.packed.space),
            },
        }
