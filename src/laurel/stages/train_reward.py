"""train-reward: feedback → rewards. Makes the reward of every arm; learned rewards include a measure of their
quality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from laurel.data.directory import Output, output_directory
from laurel.data.lineage import read_inputs
from laurel.data.preferences import set_of
from laurel.device import single_threaded
from laurel.llm.mirror import mirrored
from laurel.params.annotation import MAIN
from laurel.params.arms import ArmParams, used
from laurel.params.rewards import RewardParams, chain, judge_of, method_of
from laurel.params.stage_sections import RewardSections
from laurel.params.training import AgentParams
from laurel.pool import Job, run_jobs, start_server
from laurel.progress import progress
from laurel.rewards.arms import trained_arms
from laurel.rewards.method import Inputs, LearningMethod, RewardContext
from laurel.rewards.stored import CARD, Described, StoredRewards, make_reward
from laurel.seeding import derive_seed, seed_folder
from laurel.tracking.judgements import log_asked
from laurel.tracking.run import Run
from laurel.tracking.tracker import Tracker, flatten
from laurel.training.preload import preload
from laurel.training.trial import ShortTraining


def run(
    trajectories: Path,
    captions: Path,
    preferences: Path,
    output: Path,
    responses: Path | None = None,
    **sections: Unpack[RewardSections],
) -> None:
    """Make the rewards of the arms and their dependencies.

    Args:
        trajectories: output of the collect stage: observations, and the environment's reward as a baseline.
        output: directory in the format of `laurel.rewards.stored`.
        responses: as in `laurel.stages.annotate.run`, for methods that ask a language model.

    Raises:
        ParamsError: a reward is incompatible with caption.segment_length.
        DataError: an input is missing or damaged, or does not fit the others.
        WorkerError: a process that made a reward died.
    """
    seed, annotate = sections["seed"], sections["annotate"]
    described = used({name: sections[name] for name in ("seed", "env", "caption", "annotate", "rewards")})
    context = RewardContext(sections["env"], sections["caption"], annotate, sections["rewards"])
    inputs = {"trajectories": trajectories, "captions": captions, "preferences": preferences}
    read_inputs(described, inputs)
    kept = responses if annotate.keeps_responses else None
    with (
        single_threaded(),
        mirrored(annotate.language_model.store, kept),
        output_directory(output, stage="train-reward", params=described, inputs=inputs) as out,
    ):
        trial = ShortTraining(seed, context)
        made_from = Inputs(captions, preferences, out.path, trajectories, trial=trial)
        account = context.account
        account.budget.answered = lambda: out.use_soon(account.usage)
        try:
            _make(seed, context, sections["arms"], sections["agent"], made_from, out)
        finally:
            out.use(account.usage)
        with Tracker(sections, "train-reward", inputs, out).stage_run() as tracked:
            if tracked:
                track(tracked, sections, out)
                log_asked(tracked, out.asked)


def _make(
    seed: int, context: RewardContext, arms: Sequence[ArmParams], agent: AgentParams, inputs: Inputs, out: Output
) -> None:
    """Make the rewards of all arms that are trained; rewards made separately for each seed are made in parallel."""
    adapter = context.adapter
    trained = trained_arms(arms, context, adapter)
    wanted = [name for arm in arms if arm.name in trained for name in sorted(arm.reward)]
    rewards: dict[str, tuple[RewardParams, tuple[int, ...] | None, int]] = {}
    jobs, names = [], chain(context.rewards, wanted)
    modules = preload("reward", context.env)
    if any(method_of(context.rewards[name]).per_seed for name in names):
        start_server(modules)  # imports them while the other rewards are made
    for name in names:
        settings = context.rewards[name]
        method = method_of(settings)
        sets = context.label_sets(settings)
        rewards[name] = settings, agent.seeds if method.per_seed else None, 1 if method.per_seed else sets
        if not method.per_seed:
            for number in range(sets):
                place = set_of(out.path / name, number)
                place.mkdir()
                own_seed = derive_seed(seed, "label set", str(number)) if number else seed
                method.fit(context, context.inputs_of(settings, number, inputs), adapter, own_seed, place)
            continue
        for agent_seed in agent.seeds:
            made_from = context.inputs_of(settings, agent_seed % sets, inputs)
            place = out.path / name / seed_folder(agent_seed)
            jobs.append(
                Job(f"{name} seed {agent_seed}", make_reward, (context, name, agent_seed, made_from, place), kind=name)
            )
    if jobs:
        with progress(len(jobs), "train-reward: controls", "rewards") as advance:
            run_jobs(jobs, agent.workers, advance, modules)
    StoredRewards.write(out.path, rewards)
    out.counts, out.asked = {"rewards": len(rewards)}, context.account.asked
    out.notes += context.account.notes
    stored = StoredRewards.read(out.path)
    out.notes += [
        f"The reward {name} is simulated: it was made by {judge}." for name, judge in stored.simulated().items()
    ]
    out.notes += [
        f"The reward {name} is the same for every {table.of} ({len(table.texts):,}), so it has no preference."
        for name in stored.settings
        if (table := stored.table(name, 0.5)) and len(table.texts) and float(np.ptp(table.rewards)) == 0
    ]
    for name, qualities in stored.qualities().items():
        out.notes += method_of(stored.settings[name]).notes(name, qualities)
    if all_qualities := stored.qualities().values():
        out.counts["pairs"] = next((sets[0]["pairs"] for sets in all_qualities if "pairs" in sets[0]), 0)
    if not rewards:
        out.notes.append("No arm has a reward besides the environment's, so none was made.")


def track(run: Run, sections: Mapping[str, Any], out: Output) -> None:
    """Log the quality of each learned reward, and register a version for each label set; the first has the alias.

    Rewards that are made separately for each seed or agent are not registered.
    """
    path, env, caption = out.path, sections["env"], sections["caption"]
    stored = StoredRewards.read(path)
    qualities = stored.qualities()
    for name, settings in stored.settings.items():
        if stored.seeds[name] is not None or isinstance(method_of(settings), LearningMethod):
            continue
        begin = "" if len(qualities) == 1 else f"{name}."
        judge = judge_of(name, stored.settings)
        asked = judge or method_of(settings).asked_in_fit()
        tags = {"env": env.id, "reward": name}
        if asked:
            tags["annotator"] = sections["annotate"].of_judge(asked).annotator
        card = Described(path / name, name, settings, env, caption.with_action, judge or MAIN).card()
        for number, quality in enumerate(qualities.get(name, [{}] * stored.sets[name])):
            of_set = f"set-{number}." if number else ""
            numbers = {f"{begin}{of_set}{key}": value for key, value in flatten(quality).items()}
            run.log_metrics({key: value for key, value in numbers.items() if isinstance(value, int | float)})
            tags_of_set = {**tags, **stored.label_set_tag(name, number)}
            source = run.log_model(set_of(path / name, number), f"reward-{name}", tags_of_set, {CARD: card}, loads=True)
            if sections["tracking"].register_models:
                run.register(f"reward.{env.id}", source, tags_of_set, alias=None if number else name)
