"""The amount of questions and training of a run, for `laurel check` and submissions. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import MissingEnvError
from laurel.evaluation.formats import counted
from laurel.feedback.probe import has_probe, load_probe
from laurel.params import EnvParams, Params
from laurel.params.annotation import AnnotateParams
from laurel.params.resolved_arms import Arm
from laurel.params.rewards import chain, method_of
from laurel.rewards.arms import trained_arms
from laurel.rewards.method import LearningMethod, RewardContext
from laurel.training.engines import engine_of, steps_of


@dataclass(frozen=True)
class Training:
    """The trained agents of an arm, or of a search's candidate."""

    agents: int
    steps_each: int
    """Environment steps per agent, a multiple of the update size: may exceed agent.steps."""
    questions_each: int
    """Maximum number of questions to judges per agent during training."""
    at_least: bool = False
    """Whether it may take more steps, until the end of a rollout."""

    @classmethod
    def of(cls, arm: Arm, params: Params) -> Training:
        """Return an arm's training."""
        methods = [method_of(params.rewards[name]) for name in chain(params.rewards, arm.reward)]
        questions = sum(method.most_questions() for method in methods if isinstance(method, LearningMethod))
        return cls(len(arm.agent.seeds), steps_of(arm), questions, at_least=engine_of(arm.agent).whole_rollouts)


def trainings(params: Params, adapter: EnvAdapter | None) -> dict[str, Training]:
    """Return arm -> its training.

    Args:
        adapter: of the environment; None if it is not installed, in which case arms are not checked against it.
    """
    arms = params.resolved_arms
    fit = trained_arms(params.arms, RewardContext.of(params), adapter) if adapter else arms
    return {name: Training.of(arms[name], params) for name in fit if arms[name].trained}


def agents_and_steps(trained: Sequence[Training]) -> str:
    """Describe the number of agents, and the environment steps of each."""
    agents = counted(sum(training.agents for training in trained), "agent")
    counts = sorted({training.steps_each for training in trained})
    if not counts:
        return agents
    least = "at least " if any(training.at_least for training in trained) else ""
    return f"{agents} of {least}{' to '.join(f'{steps:,}' for steps in dict.fromkeys((counts[0], counts[-1])))} steps"


def pairs_asked(params: Params, shards: int = 1) -> str:
    """Describe the maximum number of pairs for all judges and label sets, and of questions with known answers.

    Args:
        shards: parallel steps that share the pairs; each asks all questions with known answers.
    """
    asking, judges = params.annotate, params.judges
    sets = asking.feedback_seeds
    n_pairs = sets * sum(asking.of_judge(judge).n_pairs for judge in judges)
    parts = [counted(n, noun) for n, noun in ((len(judges), "judge"), (sets, "label set")) if n_pairs and n > 1]
    total = f" in all ({', '.join(parts)}{' each' * (len(parts) > 1)})" if parts else ""
    known = (
        shards * sets * sum(_n_known_answers(params.env, asking.of_judge(judge)) for judge in judges) if n_pairs else 0
    )
    checks = f" and {known:,} with known answers" if known else ""
    return f"at most {counted(n_pairs, 'pair')} of captions{total}{checks}"


def _n_known_answers(env: EnvParams, asking: AnnotateParams) -> int:
    """Return the maximum number of questions with known answers to a judge: about success, and those of a probe."""
    probed = asking.probe.min_score is not None and has_probe(env.id)
    of_probe = len(load_probe(env.id).asked) if probed else 0
    return of_probe + (asking.probe.success_questions if _may_say_success(env) else 0)


def _may_say_success(env: EnvParams) -> bool:
    """Whether captions may say that the task is done."""
    try:
        adapter = adapter_for(env)
    except MissingEnvError:  # it is installed in the image alone
        return True
    return bool(adapter.success_words or adapter.success_captions())


def questions_in_training(trained: Sequence[Training]) -> list[str]:
    """Describe the maximum number of questions to online judges; empty if there are none."""
    n_questions = sum(training.agents * training.questions_each for training in trained)
    return [f"at most {counted(n_questions, 'question')} to online judges during training"] if n_questions else []


def judges_of_curricula(params: Params) -> dict[str, list[str]]:
    """Return judges of interesting tasks -> arms whose curricula ask them."""
    arms_by_judge: dict[str, list[str]] = {}
    for name, arm in params.resolved_arms.items():
        if arm.trained and arm.agent.curriculum is not None and (judge := arm.agent.curriculum.interest) is not None:
            arms_by_judge.setdefault(judge, []).append(name)
    return arms_by_judge


def judges_in_training(params: Params) -> list[str]:
    """List the judges that are asked during training: by rewards, curricula, hints and planners."""
    from laurel.agents.actors import judge_asked

    helpers = [helper for arm in params.resolved_arms.values() if arm.trained and (helper := arm.agent.settings.helper)]
    asked = [method_of(settings).asked_in_training() for settings in params.rewards.values()]
    asked += [*judges_of_curricula(params), *(judge_asked(helper.actor, helper.options) for helper in helpers)]
    return [judge for judge in dict.fromkeys(asked) if judge is not None]


def judges_in_evaluation(params: Params) -> list[str]:
    """List the judges that are asked while agents are evaluated: by actors, and by planners of trained agents."""
    from laurel.agents.actors import judge_asked

    acting = [(arm.actor, arm.actor_options) for arm in params.arms if arm.actor is not None]
    planners = [
        planner for arm in params.resolved_arms.values() if arm.trained and (planner := arm.agent.settings.planner)
    ]
    asked = [judge_asked(*actor) for actor in (*acting, *((planner.actor, planner.options) for planner in planners))]
    return [judge for judge in dict.fromkeys(asked) if judge is not None]
