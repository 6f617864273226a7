"""Whether arms and algorithms can be trained in an environment: checked before anything is collected or paid for.

If the spaces suffice for the check, torch is not imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from laurel.agents.actions import hardly_tried
from laurel.agents.hints import make_helper
from laurel.envs.base import EnvAdapter
from laurel.envs.spaces import n_features_of
from laurel.envs.tasks import tasks_of
from laurel.errors import EnvError, ParamsError
from laurel.feedback.annotator_kind import kind_of
from laurel.feedback.interest import check
from laurel.params.resolved_arms import Arm, check_servers
from laurel.params.rewards import method_of
from laurel.params.training import AgentParams
from laurel.rewards.arms import skipped_arms
from laurel.rewards.method import LearningMethod, RewardContext
from laurel.training.engines import engine_of, steps_of
from laurel.training.task import steps_per_update

MOST_FEATURES, MOST_NUMBERS = 10_000_000, 10_000_000_000
"""Largest number of features of an observation, and of all observations that an algorithm has at once."""


def check_agents(
    run_seed: int, arms: Collection[Arm], context: RewardContext, adapter: EnvAdapter, *, branch: bool = False
) -> None:
    """Refuse agents that cannot be trained; arms that are not trained are skipped.

    Args:
        arms: of the run, or of a branch of it.
        context: sections that their rewards depend on.
        branch: whether other arms of the run are trained elsewhere, in which case all of these may be skipped.

    Raises:
        ParamsError: no arm can be trained or evaluated, Stable-Baselines3 does not take an arm's settings, or arms need
            different servers at one address.
        EnvError: an algorithm does not fit the environment's observations or actions.
        LaurelError: the method of a reward lacks something that it needs.
    """
    skipped = skipped_arms(arms, context, adapter)
    if len(skipped) == len(arms) and not branch:
        raise ParamsError(f"arms: no arm is left. {' '.join(skipped.values())}")
    check_servers(arm for arm in arms if arm.name not in skipped)
    trained = [arm for arm in arms if arm.trained and arm.name not in skipped]
    checked: list[AgentParams] = []
    for arm in trained:
        if arm.agent not in checked:
            checked.append(arm.agent)
            _check_learned(arm, context)
            try:
                _check_features(arm.agent, adapter)
                _check_algorithm(run_seed, context, arm.agent, adapter)
            except (EnvError, ParamsError) as error:
                if all(peer.agent == arm.agent for peer in trained):
                    raise
                raise type(error)(f"The arm {arm.name}: {error}") from None


def _check_learned(arm: Arm, context: RewardContext) -> None:
    """Refuse a reward that is learned during training with an engine whose checkpoints do not hold it."""
    learned = [name for name in arm.reward if isinstance(method_of(context.rewards[name]), LearningMethod)]
    if learned and not engine_of(arm.agent).keeps_rewards:
        raise ParamsError(
            f"arms.{arm.name}: its reward {learned[0]} is learned while agents are trained, which only Laurel's own "
            f"algorithms support. Set agent.engine to laurel."
        )


def _check_features(agent: AgentParams, adapter: EnvAdapter) -> None:
    """Refuse observations that are too many numbers for a network (`hidden` layers, or Stable-Baselines3's).

    An adapter's own `features` are not checked.
    """
    ours = agent.engine == "laurel"
    if type(adapter).features is not EnvAdapter.features or (ours and not hasattr(agent.settings, "hidden")):
        return
    width = sum(n_features_of(leaf.space) for leaf in adapter.packed.leaves)
    rows = steps_per_update(agent.settings) if ours else agent.settings.n_envs
    if width > MOST_FEATURES or width * rows > MOST_NUMBERS:
        raise EnvError(
            f"{adapter.env_id}: an observation is {width:,} numbers for a network (a discrete part is one for each of "
            f"its values), and agent.{agent.section} has {rows:,} observations at once, {4 * width * rows / 1e9:,.0f} "
            "GB. Describe states by a MultiDiscrete or a Box of fewer numbers, or write `features` in the adapter."
        )


def _check_algorithm(run_seed: int, context: RewardContext, agent: AgentParams, adapter: EnvAdapter) -> None:
    engine_of(agent).check_made(run_seed, context.env, adapter)
    if (curriculum := agent.curriculum) is not None:
        tasks = tasks_of(adapter, "agent.curriculum")
        if curriculum.interest is not None:
            check(tasks, context.annotate, curriculum.interest)
    for helper in agent.settings.helpers:
        make_helper(helper, adapter, context.annotate)


def notes_on_actions(arms: Iterable[Arm], adapter: EnvAdapter) -> list[str]:
    """Return a note on continuous actions that Gaussian policies of Laurel's own algorithms hardly try."""
    trained = [arm.name for arm in arms if arm.trained and arm.agent.engine == "laurel"]
    # Who writes texts draws tokens.
    ends = hardly_tried(adapter.action_space) if trained and not adapter.texts else None
    if ends is None:
        return []
    return [
        f"Agents of {', '.join(trained)} hardly try most actions: their range is {ends}, but policies start as "
        "Gaussians with mean 0 and standard deviation 1, clipped to it. Rescale the actions to [-1, 1] in the "
        "environment (gymnasium.wrappers.RescaleAction), or set agent.engine to sb3, whose SAC does so itself."
    ]


def notes_on_judges(arms: Iterable[Arm], context: RewardContext) -> list[str]:
    """Return the notes on judges that agents ask about pairs of captions while they are trained."""
    methods = [method_of(context.rewards[name]) for arm in arms if arm.trained for name in arm.reward]
    asked = [method.topic(context, 0) for method in methods if isinstance(method, LearningMethod)]
    judges = dict.fromkeys(topic.judge for topic in asked if topic and topic.shown == "pair")
    voters = [voter for judge in judges for voter in context.annotate.of_judge(judge).voters]
    return list(dict.fromkeys(note for voter in voters for note in kind_of(voter).notes()))


def notes_on_late_labels(arms: Iterable[Arm], context: RewardContext) -> list[str]:
    """Return notes on rewards whose labels take effect only after training has ended."""
    late: dict[tuple[str, int, int], list[str]] = {}
    for arm in arms:
        for name in arm.reward if arm.trained and engine_of(arm.agent).keeps_rewards else ():
            method, steps = method_of(context.rewards[name]), steps_of(arm)
            if isinstance(method, LearningMethod):
                first = method.first_effect(steps_per_update(arm.agent.settings))
                if first >= steps:
                    late.setdefault((name, first, steps), []).append(arm.name)
    return [
        f"Labels of the reward {name} would take effect after {first:,} environment steps, but agents of "
        f"{', '.join(names)} are trained for {steps:,}, so it pays nothing. Lower rewards.{name}.every or its delay, "
        "or raise agent.steps."
        for (name, first, steps), names in late.items()
    ]


def notes_on_unpaid(arms: Iterable[Arm]) -> list[str]:
    """Return a note on arms that are paid nothing: neither by a reward nor by the environment."""
    unpaid = [
        arm.name
        for arm in arms
        if arm.trained
        and not arm.agent.settings.pays
        and not arm.shaping.extrinsic
        and not (arm.shaping.intrinsic and any(arm.reward.values()))
    ]
    if not unpaid:
        return []
    named = ", ".join(unpaid)
    return [
        f"Agents of {named} learn from no reward at all: shaping.extrinsic, the weight of the environment's reward, is "
        f"0 there, and no learned reward has a weight. Set arms.{unpaid[0]}.extrinsic to 1, for instance, or leave the "
        "arm out."
    ]
