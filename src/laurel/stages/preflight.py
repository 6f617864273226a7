"""preflight: validate a whole run, before anything is collected or paid for.

Every entry point calls it: the command line before each stage (and so DVC) and before a search, the first step on
Kubeflow, a submission.
Loads and asks no language model. The stages themselves check only what they use.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from laurel.data.manifest import read_manifest
from laurel.errors import DataError, EnvError, ParamsError
from laurel.feedback.annotator_kind import check_annotator, kind_of
from laurel.params import Params
from laurel.params.rewards import chain, method_of
from laurel.stages.pipeline import STAGE

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.params.search import Sweep

TRAINERS = ("agent.engine", "agent.algorithm", "agent.sb3.algorithm")
"""Params that select the training algorithm; if a search varies them, those of the file need not be valid."""


def check_run(params: Params, start: str = "collect", *, gold: bool = True) -> EnvAdapter:
    """Make the checks of later stages on this machine; return the environment's adapter.

    Args:
        params: of the run, all sections.
        start: the first stage of the run; requirements of earlier stages are not checked.
        gold: whether gold labels that params name, or that a gate needs, must already exist.

    Raises:
        EnvError: the environment cannot be made, or the agents' algorithm does not fit it.
        ParamsError: no agent can be trained with these params, the table of prices cannot be read, or there are more
            policies than environments.
        AnnotationError, PromptError: as `check_fit`; also an annotator's directory or package is missing.
        DataError: a policy's checkpoint cannot be used, or gold labels or a folder that a reward names are missing.
    """
    from laurel.agents.actors import make_actor
    from laurel.agents.behaviour import Behaviour
    from laurel.envs import adapter_for
    from laurel.envs.vector import check_backend
    from laurel.feedback.annotator_kind import kind_of
    from laurel.stages.label_quality import gold_of, require_references

    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    check_backend(params.env, adapter)
    if params.evaluate.kwargs:
        _check_evaluation(params, adapter)
    names = list(STAGE)
    names_ahead = names[names.index(start) :]
    if "train-agents" in names_ahead:
        from laurel.stages.workload import judges_of_curricula

        _check_agents(params, adapter)
        for judge in judges_of_curricula(params):
            kind_of(params.annotate.of_judge(judge)).check_here()
    if "train-reward" in names_ahead:
        _check_files(params)
    if "annotate" in names_ahead and params.judges:
        _check_annotators(params, adapter, check_machine=True)
        if gold:
            gold_of(params.annotate, adapter)
            require_references(params.annotate, params.judges)
    if "collect" in names_ahead:
        Behaviour(params.collect.policies, adapter, params.collect.n_envs, 0)
    for arm in params.arms:
        if arm.actor is not None:
            make_actor(arm.actor, adapter, f"arms.{arm.name}.agent", annotate=params.annotate, **arm.actor_options)
    return adapter


def check_search(params: Params, sweep: Sweep) -> None:
    """Make the checks of a search's trials that would fail for all trials, or for all with one of the searched
    algorithms.

    Raises:
        LaurelError: as `check_run`, of the arm that is searched.
    """
    from laurel.params.search import with_values

    chosen = [name for name in TRAINERS if name in sweep.space]
    narrowed = params.narrowed(sweep.arm)
    for values in product(*(sweep.space[name].choices or () for name in chosen)):
        try:
            candidate = with_values(narrowed, dict(zip(chosen, values, strict=True)))
        except ParamsError:  # an incompatible algorithm and engine: such a trial fails, others may not
            continue
        check_run(candidate, "train-agents")


def _check_evaluation(params: Params, adapter: EnvAdapter) -> None:
    """Refuse environment arguments of evaluation that change the agents' spaces."""
    from laurel.envs import adapter_for

    try:
        evaluated = adapter_for(params.env.with_kwargs(params.evaluate.kwargs))
    except EnvError as error:  # training's arguments alone were accepted
        raise EnvError(f"evaluate.kwargs: {str(error).removeprefix('env.kwargs: ')}") from error
    if (evaluated.row_space, evaluated.action_space) != (adapter.row_space, adapter.action_space):
        raise ParamsError(
            f"evaluate.kwargs is {params.evaluate.kwargs}, with which {params.env.id} has other observations or "
            f"actions than in training. Leave out the arguments that change them."
        )


def check_fit(params: Params, adapter: EnvAdapter) -> None:
    """Refuse parameters that do not fit each other or the environment, regardless of this machine.

    Raises:
        ParamsError: no agent can be trained with these params.
        EnvError: the agents' algorithm does not fit the environment.
        AnnotationError: an annotator has no criterion for this environment, or lacks a required capability.
        PromptError: the prompt does not exist, or does not fit the environment.
    """
    _check_agents(params, adapter)
    _check_annotators(params, adapter)


def check_endings(params: Params, trajectories: Path) -> None:
    """Refuse collected steps in which no episode ended if a reward is made from how episodes end: money spent on labels
    in between would be wasted.

    Raises:
        DataError: no episode ended.
    """
    from laurel.rewards.arms import trained_arms
    from laurel.rewards.method import RewardContext

    counts = read_manifest(trajectories, "collect")["counts"]
    if counts["episodes"] > counts["unfinished_episodes"]:
        return
    context = RewardContext.of(params)
    trained = trained_arms(params.arms, context, context.adapter)
    names = chain(params.rewards, [name for arm in params.arms if arm.name in trained for name in arm.reward])
    needing = [name for name in names if method_of(params.rewards[name]).of_endings]
    if needing:
        raise DataError(
            f"{trajectories}: no episode ended, but {', '.join(needing)} is made from how episodes end. Raise "
            "collect.steps, or lower collect.n_envs."
        )


def check_parts(params: Params, compiled: int) -> None:
    """Raise ParamsError for a pipeline that was compiled to collect in another number of parts than collect.parts."""
    if compiled not in (1, params.collect.parts):
        raise ParamsError(
            f"collect.parts is {params.collect.parts}, but the pipeline was compiled with {compiled}. Compile it again."
        )


def _check_agents(params: Params, adapter: EnvAdapter) -> None:
    from laurel.rewards.method import RewardContext
    from laurel.training.checks import check_agents

    check_agents(params.seed, params.resolved_arms.values(), RewardContext.of(params), adapter)


def _check_files(params: Params) -> None:
    """Refuse rewards whose files or folders are missing: money spent on labels before would be wasted."""
    for name in chain(params.rewards, [name for arm in params.arms for name in arm.reward]):
        for key, place in method_of(params.rewards[name]).named_files().items():
            if not Path(place).expanduser().exists():
                raise DataError(f"rewards.{name}.{key}: {place} does not exist. Correct the path, or leave {key} out.")


def _check_annotators(params: Params, adapter: EnvAdapter, *, check_machine: bool = False) -> None:
    """Refuse annotators that do not fit; with `check_machine`, also check this machine."""
    voters = [voter for judge in params.judges for voter in params.annotate.of_judge(judge).voters]
    for voter in voters:
        check_annotator(kind_of(voter), adapter)
    if check_machine:
        for voter in voters:
            kind_of(voter).check_here()
