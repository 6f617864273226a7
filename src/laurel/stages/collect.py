"""collect: policies → trajectories. Steps policies in many environments at once and keeps every transition."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel import __version__
from laurel.data.background import InBackground
from laurel.device import single_threaded
from laurel.params import CollectParams, EnvParams, TrackingParams
from laurel.params.fields import dumped
from laurel.pool import usable_cpus
from laurel.tracking.run import Run

if TYPE_CHECKING:
    from laurel.agents.behaviour import Behaviour
    from laurel.data.directory import Output
    from laurel.envs.base import EnvAdapter


STAGE, PART = "collect", "collect-part"
ENVS_PER_THREAD = 16
"""Below this number of environments, stepping takes less time than waking a thread."""


def run(
    seed: int, env: EnvParams, collect: CollectParams, tracking: TrackingParams, output: Path, part: int | None = None
) -> None:
    """Collect exactly `collect.steps` transitions, in `collect.parts` independent parts.

    Resets are not transitions. In a part's last step, environments beyond the count are left out. Unfinished episodes
    are kept: their last step is neither terminated nor truncated.

    Args:
        output: directory to write shards of `laurel.data.trajectories` into.
        part: collect only this one, counted from 0; `merge_trajectories` joins them. None collects all.

    Raises:
        EnvError: the environment cannot be made, or its spaces are not supported.
        ParamsError: there are more policies than environments.
        DataError: a policy's checkpoint cannot be used, or the output cannot be written.
    """
    from laurel.data.directory import output_directory
    from laurel.data.trajectories import join_trajectories
    from laurel.envs import words_of
    from laurel.progress import progress
    from laurel.tracking.tracker import Tracker

    sections = {"seed": seed, "env": env, "collect": collect}
    used = dumped(sections)
    stage = STAGE if part is None else PART
    numbers = [part] if part is not None else list(range(collect.parts))
    collectors = [_Collector.of(seed, env, collect, number) for number in numbers]  # checks before anything is made
    with output_directory(output, stage=stage, params=used if part is None else {**used, "part": part}) as out:
        out.adapter = words_of(env.id, env.kwargs)
        with progress(sum(collector.steps for collector in collectors), "collect", "steps") as advance:
            if len(collectors) == 1:
                out.counts = dict(collectors[0].collect(out.path, advance))
            else:
                places = [out.path / f".part-{number}" for number in numbers]
                counts = [
                    collector.collect(place, advance) for collector, place in zip(collectors, places, strict=True)
                ]
                out.counts = dict(join_trajectories(list(zip(places, counts, strict=True)), out.path))
                for place in places:
                    shutil.rmtree(place)
        with Tracker({**sections, "tracking": tracking}, STAGE, {}, out).stage_run() as tracked:
            if tracked:
                track(tracked, sections, out)


def track(run: Run, sections: Mapping[str, Any], out: Output) -> None:
    """Log what was collected."""
    run.log_metrics({key: float(value) for key, value in out.counts.items()})


@dataclass(frozen=True)
class _Collector:
    """Collects one part."""

    env: EnvParams
    params: CollectParams
    adapter: EnvAdapter
    behaviour: Behaviour
    seed: int
    """Seed of the environments."""
    steps: int
    """Transitions of this part."""

    @staticmethod
    def of(run_seed: int, env: EnvParams, params: CollectParams, part: int) -> _Collector:
        from laurel.agents.behaviour import Behaviour
        from laurel.envs import adapter_for
        from laurel.seeding import derive_seed

        names = [str(part)] if part else []  # the first part uses the seed of an undivided collection
        policies_seed = derive_seed(run_seed, "collect", "policies", *names)
        adapter = adapter_for(env)
        behaviour = Behaviour(params.policies, adapter, params.n_envs, policies_seed)
        size, rest = divmod(params.steps, params.parts)
        seed = derive_seed(run_seed, "collect", "envs", *names)
        return _Collector(env, params, adapter, behaviour, seed, size + (part < rest))

    def collect(self, path: Path, advance: Callable[[int], None]) -> dict[str, int]:
        """Write shards into a directory; return their counts."""
        from laurel.agents.behaviour import collect_steps
        from laurel.data.trajectories import TrajectoryWriter, trajectory_schema
        from laurel.envs.vector import make_vector

        path.mkdir(exist_ok=True)
        n_envs, adapter = self.params.n_envs, self.adapter
        action_shape = self.behaviour.uniform.action_shape
        action_size = action_shape[0] if action_shape else None
        layout = (adapter.observation_dtype, adapter.observation_size, action_size, adapter.info_fields)
        schema = trajectory_schema(*layout)
        threads = min(usable_cpus(), max(1, n_envs // ENVS_PER_THREAD))
        computes = any(policy.kind != "random" for policy in self.params.policies)
        with (
            single_threaded() if computes else nullcontext(),
            closing(make_vector(self.env, adapter, n_envs, self.seed, threads=threads)) as envs,
        ):
            metadata = self._metadata(envs.backend)
            with (
                TrajectoryWriter(path, schema, metadata, self.params.shard_steps) as writer,
                InBackground(writer.write) as write,
            ):
                unfinished = collect_steps(envs, self.behaviour, self.steps, write, advance)
        return {
            "transitions": self.steps,
            "episodes": writer.episodes,
            "unfinished_episodes": unfinished,
            "shards": writer.shards,
        }

    def _metadata(self, backend: str) -> dict[str, Any]:
        """Return metadata for every shard, so that it can be read without this run's files."""
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
