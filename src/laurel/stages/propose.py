"""propose: an agent's checkpoint → a shard of its next round's proposals. A task of the pipeline on KFP.

`train_agents.run` learns from the shards of a round, and gives what it would if it had sampled them itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from laurel.data.directory import output_directory
from laurel.data.lineage import PARTS, read_inputs
from laurel.llm.served_sampling import servers
from laurel.params.arms import served_actors, used
from laurel.params.stage_sections import TrainingSections, arms_of
from laurel.rewards.method import RewardContext

if TYPE_CHECKING:
    from laurel.agents.language_model.shards import SampledShard
    from laurel.params.arms import Arm


def run(begun: Path, output: Path, shard: int, **sections: Unpack[TrainingSections]) -> None:
    """Sample a shard of the next round of one agent.

    Args:
        begun: output of `train_agents.run` for the rounds before.
        output: directory to write the shard into; nothing, where the arm was left out.
        shard: its number, counted from 0.
        sections: of one arm and one seed.

    Raises:
        DataError: the input is missing or damaged, or does not go with the parameters.
    """
    described, inputs = used(sections), {"begun": begun}
    read_inputs(described, inputs)
    ((name, arm),), (seed,) = arms_of(sections).items(), sections["agent"].seeds
    place = begun / name / f"seed-{seed}"
    with output_directory(output, stage=PARTS["proposals"], params={**described, "shard": shard}, inputs=inputs) as out:
        if not place.is_dir():
            return
        with servers(served_actors([arm]).values()):
            sampled = _sampled(sections, arm, place, shard)
        sampled.write(out.path)
        proposals = [one for of_step in sampled.written for one in of_step if one is not None]
        out.counts = {"proposals": len(proposals), "tokens": sum(one.tokens for one in proposals)}


def _sampled(sections: TrainingSections, arm: Arm, place: Path, shard: int) -> SampledShard:
    import torch
    from threadpoolctl import threadpool_limits

    from laurel.training.arms import task_of
    from laurel.training.loop import sample_shard
    from laurel.training.task import Assignment

    env, annotate, (seed,) = sections["env"], sections["annotate"], sections["agent"].seeds
    context = RewardContext(env, sections["caption"], annotate, sections["rewards"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums keep the order that they have where all shards are sampled in one process
    try:
        with threadpool_limits(1, user_api="blas"):
            agent = Assignment(task_of(sections["seed"], env, arm, seed, annotate), None, place)
            return sample_shard(agent, context.adapter, shard)
    finally:
        torch.set_num_threads(threads)
