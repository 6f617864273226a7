"""propose: an agent's checkpoint → a shard of its next round's proposals. A task of the pipeline on KFP.

`train_agents.run` learns from the shards of a round; the result is the same as if it had sampled them itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from laurel.data.directory import output_directory
from laurel.data.lineage import PARTS, read_inputs
from laurel.params.arms import used
from laurel.params.language_actor import LanguageActorParams
from laurel.params.resolved_arms import served_actors
from laurel.params.stage_sections import TrainingSections, arms_of
from laurel.progress import progress
from laurel.rewards.method import RewardContext
from laurel.seeding import seed_folder
from laurel.training.preload import preload
from laurel.training.task import steps_per_update


def run(begun: Path, output: Path, shard: int, **sections: Unpack[TrainingSections]) -> None:
    """Sample a shard of the next round of one agent.

    Args:
        begun: output of `train_agents.run` for the rounds before.
        output: directory to write the shard into; stays empty if the arm was skipped.
        shard: its number, counted from 0.
        sections: of one arm and one seed.

    Raises:
        WorkerError: the process that samples died.
        DataError: the input is missing or damaged, or does not match the parameters.
    """
    from laurel.agents.language_model.shards import SampledShard
    from laurel.llm.served_sampling import servers
    from laurel.pool import Job, run_jobs
    from laurel.training.arms import sample_arm

    described, inputs = used(sections), {"begun": begun}
    read_inputs(described, inputs)
    ((name, arm),), (seed,) = arms_of(sections).items(), sections["agent"].seeds
    place = begun / name / seed_folder(seed)
    with output_directory(output, stage=PARTS["proposals"], params={**described, "shard": shard}, inputs=inputs) as out:
        if not place.is_dir():
            return
        context = RewardContext(sections["env"], sections["caption"], sections["annotate"], sections["rewards"])
        assert isinstance(arm.agent.settings, LanguageActorParams)
        steps = steps_per_update(arm.agent.settings) // arm.agent.settings.shards
        job = Job("propose", sample_arm, (sections["seed"], context, (arm, seed, place), shard, out.path), steps)
        with servers(served_actors([arm]).values()), progress(steps, "propose", "steps") as advance:
            run_jobs([job], 1, advance, preload("train", sections["env"], [arm]))
        sampled = SampledShard.read(out.path)
        proposals = [proposal for of_step in sampled.written for proposal in of_step if proposal is not None]
        out.counts = {"proposals": len(proposals), "tokens": sum(proposal.tokens for proposal in proposals)}
