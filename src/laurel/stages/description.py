"""What a whole run will do and cost, as lines of text, before anything is collected or paid for.

Loads and asks no language model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.errors import DataError
from laurel.evaluation.formats import counted
from laurel.feedback.annotator_kind import kind_of
from laurel.params import Params
from laurel.params.annotation import MAIN
from laurel.params.arms import RANDOM
from laurel.params.judges import ChatSection
from laurel.params.rewards import chain, method_of
from laurel.plugins import is_ours
from laurel.stages.idle_settings import idle_settings
from laurel.stages.workload import agents_and_steps, judges_of_curricula, pairs_asked, questions_in_training, trainings

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.rewards.method import Collected

MOST_SETS = 8
"""Maximum number of unused label sets that are named."""


def described(params: Params, adapter: EnvAdapter, outputs: Mapping[str, Path]) -> str:
    """Describe in a few lines what a run will do, with the estimated cost of the annotator.

    Args:
        params: of the run, all sections; `check_run` accepted them.
        outputs: names of PLACES -> outputs of stages. With captions of these params the cost is estimated; otherwise
            only the maximum number of questions is given. With rewards, their possible sum per episode is listed.
    """
    from laurel.rewards.arms import skipped_arms, trainers
    from laurel.rewards.method import RewardContext
    from laurel.training.checks import notes_on_actions, notes_on_judges, notes_on_late_labels, notes_on_unpaid

    collect, agent, captions = params.collect, params.agent, outputs["captions"]
    context = RewardContext.of(params)
    skipped = skipped_arms(params.arms, context, adapter)
    arms = [arm for arm in params.arm_names if arm not in skipped]
    trained = list(trainings(params, adapter).values())
    trained_by = trainers(params.resolved_arms.values())
    trained_arms = [arm for arm in params.resolved_arms.values() if arm.name in arms]
    policies = ", ".join(policy.kind for policy in collect.policies)
    words = "captions made from the observation space alone" if adapter.generic else "its own captions"
    hints, actors = _acting_models(params, adapter)
    lines = [
        ("environment", f"{params.env.id} ({words})"),
        *(("", line) for line in _endless(params, adapter)),
        *(("note", line) for line in idle_settings(params)),
        ("collect", f"{counted(collect.steps, 'environment step')} (policy: {policies})"),
        *(("annotate", line) for line in _judge(params, captions)),
        *(("missing", line) for line in missing_keys(params)),
        ("arms", ", ".join(arms)),
        *(("", sentence) for sentence in skipped.values()),
        *(("train-reward", line) for line in _rewards(params, adapter, outputs)),
        *(("train-reward", line) for line in _paid(params, outputs)),
        (
            "train",
            f"{agents_and_steps(trained)} with {trained_by} ({counted(len(agent.seeds), 'seed')} an arm)",
        ),
        *(("", line) for line in questions_in_training(trained)),
        *(("", line) for line in notes_on_judges(trained_arms, context)),
        *(("", line) for line in (*notes_on_actions(trained_arms, adapter), *notes_on_unpaid(trained_arms))),
        *(("", line) for line in notes_on_late_labels(trained_arms, context)),
        *(("", line) for line in (*hints, *_interests(params, adapter))),
        ("evaluate", f"{counted(params.evaluate.episodes, 'episode')} for each agent"),
        *(("", line) for line in actors),
    ]
    return "".join(f"{name:<12} {line}\n" for name, line in lines)


def _endless(params: Params, adapter: EnvAdapter) -> list[str]:
    """Warn about a user's environment without a known limit of its episodes."""
    from laurel.envs import episode_limit

    if is_ours(type(adapter)) or episode_limit(params.env) is not None:
        return []
    return ["Its episodes have no limit: if they may never end, set env.max_episode_steps."]


def _judge(params: Params, captions: Path) -> list[str]:
    """Describe which annotator is asked, how many questions, and the price."""
    if not params.judges:
        return ["nothing, as no arm has a reward learned from preferences"]
    asking = params.annotate
    voters = [voter for judge in params.judges for voter in asking.of_judge(judge).voters]
    kinds = [kind_of(voter) for voter in voters]
    judged = f"{', '.join(kind.title for kind in kinds)}: {pairs_asked(params)}"
    remarks = [*_left_over(params), *(note for kind in kinds for note in kind.notes())]
    if silent := dict.fromkeys(kind.title for kind in kinds if not kind.estimates):
        judged += f", at a cost that {', '.join(silent)} does not estimate"
    told = [kind for kind in kinds if kind.estimates and not kind.simulated]
    if not any(isinstance(kind.section, ChatSection) or not is_ours(type(kind)) for kind in told):
        return [judged if silent else f"{judged}, in this process and at no cost", *remarks]
    try:
        return [judged, *remarks, *_estimated(params, captions)]
    except DataError:  # they were made with other params, or do not exist yet
        return [
            judged,
            *remarks,
            "The cost can be estimated once there are captions: laurel annotate --dry-run",
        ]


def missing_keys(params: Params) -> list[str]:
    """Report judges' keys and prices that are missing here, and what needs them; another machine may have them."""
    from laurel.agents.actors import judge_asked

    asks: dict[str, list[str]] = {judge: ["pairs"] for judge in params.judges}

    def ask(judge: str | None, for_whom: str) -> None:
        if judge in params.annotate.all_judges and for_whom not in asks.setdefault(judge, []):
            asks[judge].append(for_whom)

    for name in chain(params.rewards, [name for arm in params.arms if arm.trained for name in arm.reward]):
        method = method_of(params.rewards[name])
        ask(method.asked_in_fit(), f"the reward {name}")
        ask(method.asked_in_training(), f"the reward {name}")
    for arm in params.arms:
        if arm.actor is not None:
            ask(judge_asked(arm.actor, arm.actor_options), f"the actor of {arm.name}")
    for name, trained_arm in params.resolved_arms.items():
        for helper in trained_arm.agent.settings.helpers if trained_arm.trained else ():
            ask(judge_asked(helper.actor, helper.options), f"the {helper.what} of {name}")
    for judge, names in judges_of_curricula(params).items():
        ask(judge, f"the curriculum of {', '.join(names)}")
    by_note: dict[str, list[str]] = {}
    for judge, whom in asks.items():
        for voter in params.annotate.of_judge(judge).voters:
            if note := kind_of(voter).missing_here():
                by_note.setdefault(note, []).append(f"{judge} ({', '.join(whom)})")
    return [f"The judge {', '.join(dict.fromkeys(judges))}: {note}" for note, judges in by_note.items()]


def _left_over(params: Params) -> list[str]:
    """Warn about label sets that are paid for but used by no agent."""
    from laurel.rewards.arms import used_label_sets
    from laurel.rewards.method import RewardContext

    sets = params.annotate.feedback_seeds
    lines = []
    for judge, used in used_label_sets(params.resolved_arms.values(), RewardContext.of(params)).items():
        if left := sorted(set(range(sets)) - used):
            named = [
                *map(str, left[:MOST_SETS]),
                *([f"and {len(left) - MOST_SETS:,} more"] if left[MOST_SETS:] else []),
            ]
            named_sets = f"label set{'s' * (len(left) > 1)} {', '.join(named)}"
            of_judge = "" if judge == MAIN else f" of the judge {judge}"
            lines.append(
                f"No agent learns from {named_sets}{of_judge}: the agent with seed s learns from set s modulo {sets} "
                "(annotate.feedback_seeds). Choose other agent.seeds, or fewer sets."
            )
    return lines


def _acting_models(params: Params, adapter: EnvAdapter) -> tuple[list[str], list[str]]:
    """Estimate the language-model usage of hints in training, and of actors in evaluation, from initial states."""
    from laurel.agents.actor import initial_observations
    from laurel.agents.actors import make_actor
    from laurel.agents.hints import make_helper

    arms = [arm for arm in params.arms if arm.actor not in (None, RANDOM)]
    trained = {name: arm.agent.settings for name, arm in params.resolved_arms.items() if arm.trained}
    helpers = {name: helper for name, settings in trained.items() if (helper := settings.helper)}
    planners = {name: helper for name, settings in trained.items() if (helper := settings.planner)}
    if not arms and not helpers and not planners:
        return [], []
    view = initial_observations(params.env, adapter)
    n_episodes = params.evaluate.episodes * len(params.agent.seeds)
    training, evaluation = [], []
    for arm in arms:
        key = f"arms.{arm.name}.agent"
        actor = make_actor(str(arm.actor), adapter, key, annotate=params.annotate, **arm.actor_options)
        if cost := actor.estimate(view):
            evaluation.append(f"{arm.name}: {cost}; {n_episodes:,} episodes in all")
    for name, entry in helpers.items():
        if cost := make_helper(entry, adapter, params.annotate).estimate(view):
            training.append(f"{name}, {entry.what}: {cost}; over {entry.share:.0%} of its training")
    for name, entry in planners.items():
        if cost := make_helper(entry, adapter, params.annotate).estimate(view):
            evaluation.append(f"{name}, {entry.what} in evaluation: {cost}; {n_episodes:,} episodes in all")
    return training, evaluation


def _interests(params: Params, adapter: EnvAdapter) -> list[str]:
    """Estimate the language-model usage of curricula."""
    from laurel.envs.tasks import tasks_of
    from laurel.feedback.interest import KEY, estimate

    lines = []
    for judge, arms in judges_of_curricula(params).items():
        cost = estimate(tasks_of(adapter, KEY), params.annotate, judge)
        lines += [f"curriculum of {', '.join(arms)}: {cost}"] if cost else []  # asked once for all of them
    return lines


def _rewards(params: Params, adapter: EnvAdapter, outputs: Mapping[str, Path]) -> list[str]:
    """Estimate the chat-model usage of making rewards, besides preferences."""
    from laurel.feedback.chat_annotator import ChatAnnotator
    from laurel.rewards.method import RewardContext

    collected = _collected(params, outputs)
    lines = []
    for name in chain(params.rewards, [name for arm in params.arms if arm.trained for name in arm.reward]):
        method = method_of(params.rewards[name])
        line = method.estimate(RewardContext.of(params), collected, adapter)
        judge = method.asked_in_fit()
        voters = () if judge is None or is_ours(type(method)) else params.annotate.of_judge(judge).voters
        if line is None and any(isinstance(kind_of(voter), ChatAnnotator) for voter in voters):
            line = "asks a chat model, at a cost that its method does not estimate"
        lines += [f"{name}: {line}"] if line else []
    return lines


def _collected(params: Params, outputs: Mapping[str, Path]) -> Collected | None:
    """Return trajectories and captions of these params, for an estimate; None if there are none."""
    from laurel.data.lineage import read_inputs
    from laurel.rewards.method import Collected

    sources = ("trajectories", "captions")
    try:
        read_inputs(params.used("seed", "env", "collect", "caption"), {name: outputs[name] for name in sources})
    except DataError:
        return None
    return Collected(**{name: outputs[name] for name in sources})


def _paid(params: Params, outputs: Mapping[str, Path]) -> list[str]:
    """Describe how much an episode can earn from rewards made with these params; empty if there are none yet."""
    from laurel.data.lineage import read_inputs
    from laurel.stages.reward_warnings import bonus_warnings

    try:
        used = params.used("seed", "env", "caption", "annotate", "rewards")
        read_inputs(used, {name: outputs[name] for name in ("trajectories", "reward")})
        return bonus_warnings(params.resolved_arms.values(), outputs["reward"], outputs["trajectories"])
    except DataError:  # they were made with other params, or do not exist yet
        return []


def _estimated(params: Params, captions: Path) -> list[str]:
    from laurel.stages import estimate_annotate

    lines = estimate_annotate.run(params, captions).splitlines()
    return [line for line in lines if line and line != estimate_annotate.NOTHING]
