"""preflight: does a whole run fit together? Asked before anything is collected or paid for, wherever a run begins.

Loads no language model and asks nobody. Knows nothing about where a run takes place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laurel.errors import ParamsError
from laurel.params import Params

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.params.annotation import AnnotateParams


def check_run(params: Params, *, gold: bool = True) -> None:
    """Refuse what a stage on this machine would refuse that comes late.

    Args:
        params: of the run, all sections.
        gold: whether labels of a person that params name must be there already.

    Raises:
        EnvError, ParamsError, AnnotationError, PromptError: as `check_fit`.
        EnvError: the environment cannot be made.
        AnnotationError: an annotator's directory or package is missing.
        ParamsError: the table of prices is none, or there are more policies than environments.
        DataError: a policy's checkpoint cannot be used, or gold labels are missing.
    """
    from laurel.agents.behaviour import Behaviour
    from laurel.envs import adapter_for
    from laurel.stages.label_quality import gold_of

    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    check_fit(params, adapter)
    Behaviour(params.collect.policies, adapter, params.collect.n_envs, 0)
    for voter in params.annotate.voters:
        _check_files(voter)
    if gold:
        gold_of(params, adapter)


def check_fit(params: Params, adapter: EnvAdapter) -> None:
    """Refuse parameters that do not go together or with the environment, whatever this machine has.

    Raises:
        ParamsError: no agent can be trained with these params.
        EnvError: the agents' algorithm does not fit the environment.
        AnnotationError: an annotator has nothing to judge this environment by, or is asked for what it cannot do.
        PromptError: the prompt is none, or does not go with the environment.
    """
    from laurel.feedback.goals import embedding_goals
    from laurel.training.checks import check_agents

    check_agents(params, adapter)
    if "similarity" in params.agent.arms:
        embedding_goals(params.annotate.embedding, adapter)
    for voter in params.annotate.voters:
        _check_annotator(voter, adapter)


def check_parts(params: Params, compiled: int) -> None:
    """Refuse a graph that collects in other parts than the parameters say.

    Raises:
        ParamsError: it does; without parts of its own it takes any number.
    """
    if compiled not in (1, params.collect.parts):
        raise ParamsError(
            f"collect.parts is {params.collect.parts}, but the pipeline was compiled with {compiled}. Compile it again."
        )


def _check_annotator(params: AnnotateParams, adapter: EnvAdapter) -> None:
    from laurel.feedback.annotators import choices_of, make_annotator
    from laurel.feedback.goals import embedding_goals
    from laurel.feedback.questions.pair import PairQuestion

    match params.annotator:
        case "embedding":
            embedding_goals(params.embedding, adapter)
        case "scripted":
            make_annotator(params, adapter, 0)
        case "openai" | "huggingface":
            prompt = PairQuestion.load_prompt(params.language_model.prompt)
            question = PairQuestion(prompt, adapter, params.language_model.goal)
            question.messages(question.sample)
            choices_of(params, prompt)


def _check_files(params: AnnotateParams) -> None:
    """Refuse an annotator that lacks something here; whether a server takes its key is seen when it is asked."""
    from laurel.llm.encoder import check_directory
    from laurel.llm.local_model import check_installed
    from laurel.llm.prices import read_prices

    if params.annotator == "embedding":
        check_directory(params.embedding.model)
    if params.annotator == "huggingface":
        check_installed(params.huggingface)
    if params.annotator in ("openai", "huggingface") and params.budget.prices is not None:
        read_prices(params.budget.prices)
