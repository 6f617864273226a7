"""The section `annotate`: which pairs are judged, the budget, and the checks that labels must pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from laurel.errors import ParamsError, closest
from laurel.params.fields import Count, FilePath, Positive, Probability, Section, merged
from laurel.params.file import NAME, sentences, shown
from laurel.params.judges import (
    ChatSection,
    EmbeddingParams,
    HuggingFaceParams,
    LanguageModelParams,
    OpenAIParams,
    ScriptedParams,
)
from laurel.params.kinds import ANNOTATORS
from laurel.params.plugged import PluggedSection, listed, one_of

Overrides = dict[str, JsonValue]
SHARED = frozenset({"budget", "gold", "feedback_seeds", "judges"})
"""Keys that all judges of a run share."""
ENSEMBLE = "ensemble"
MAIN = "main"
"""Name of the judge that the section itself configures."""


def _annotator(value: object) -> object:
    return one_of(value, ANNOTATORS.kinds())


def _member(value: object) -> object:
    return one_of(value, tuple(kind for kind in ANNOTATORS.kinds() if kind != ENSEMBLE))


class BudgetParams(Section):
    """Limits of what each stage may spend on asking: calls, tokens and cost of all its processes together, minutes of
    each process by itself. Stored answers cost nothing.
    """

    max_calls: Count | None = None
    """Maximum number of requests, not counting repetitions of those that failed; null: no limit."""
    max_tokens: Count | None = None
    """Maximum number of tokens, prompts and completions together."""
    max_cost: Positive | None = None
    """Maximum cost in US dollars, according to the price table."""
    max_minutes: Positive | None = None
    """Time limit in minutes, counted from a process's first request; pending requests are awaited."""
    on_limit: Literal["stop", "continue"] = "stop"
    """What to do when a limit is reached. stop: end the run and say what to do next; continue: use the answers so far,
    and report the missing ones; models that act, hint or write rewards stop the run nevertheless."""
    prices: FilePath | None = None
    """A YAML file with your own prices, like llm/prices.yaml, which is looked up first; null: only the packaged
    prices."""

    _ledger: Path | None = PrivateAttr(default=None)

    @property
    def ledger(self) -> Path | None:
        """The file in which the processes of a stage record their spending; None: only this process spends."""
        return self._ledger

    def kept_in(self, ledger: Path | None) -> BudgetParams:
        """Return the same limits for all processes that note their spending in a file."""
        shared = self.model_copy()
        shared._ledger = ledger
        return shared

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in (self.max_calls, self.max_tokens, self.max_cost, self.max_minutes))

    def share(self, number: int, parts: int) -> BudgetParams:
        """Return the budget of one of several machines that ask in parallel: all limits but the minutes are divided."""
        calls, tokens = (
            None if limit is None else limit * (number + 1) // parts - limit * number // parts
            for limit in (self.max_calls, self.max_tokens)
        )
        cost = None if self.max_cost is None else self.max_cost / parts
        return self.model_copy(update={"max_calls": calls, "max_tokens": tokens, "max_cost": cost})


class GateParams(Section):
    """Limits that labels must satisfy before anything is trained on them. The run stops if the whole 95% interval of a
    figure is beyond its limit; null is no limit. A gate on answers has no effect for an annotator that keeps none.
    """

    min_parse_rate: Probability | None = 0.9
    """Minimum share of answers that can be parsed."""
    max_position_bias: Annotated[float, Field(ge=0.0, le=0.5, allow_inf_nan=False)] | None = 0.4
    """Maximum position bias: how far the share of answers that name the text shown first may be from 1/2. Asking in
    both orders cancels a bias, but a strong bias leaves few labels."""
    max_abstain_rate: Probability | None = 0.5
    """Maximum share of answers that abstain, including refusals."""
    min_success_preferred: Probability | None = 0.5
    """Minimum share of the questions of `probe.success_questions` in which a caption of success at the task is
    preferred; checked before any pair is asked about. Set it to null if the goal is not the task's own."""
    min_swap_consistency: Probability | None = None
    """Minimum share of pairs that get the same label in either order."""
    max_intransitive: Probability | None = None
    """Maximum share of judged triads that are intransitive; 1/4 for random answers."""
    min_agreement: Probability | None = None
    """Minimum share of labels that agree with gold labels, or with the environment's progress if there are none."""
    min_gold_pairs: Count | None = None
    """Minimum number of labels that can be compared with gold labels."""


def _several(members: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(members) < 2:
        raise ValueError("must have two entries or more: a vote needs several annotators.")
    return members


class MemberParams(Section):
    """An annotator of an ensemble: settings as in `annotate`, except for those given here."""

    model_config = ConfigDict(extra="allow")

    annotator: Annotated[str, BeforeValidator(_member)]
    """The annotator: any but an ensemble."""
    weight: Positive = 1.0
    """Weight of its vote, relative to the other members'."""
    embedding: Overrides = Field(default_factory=dict)
    scripted: Overrides = Field(default_factory=dict)
    language_model: Overrides = Field(default_factory=dict)
    openai: Overrides = Field(default_factory=dict)
    huggingface: Overrides = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_known_sections(self) -> MemberParams:
        for key in self.model_extra or {}:
            if key != self.annotator:
                allowed = tuple(dict.fromkeys((*type(self).model_fields, self.annotator)))
                raise ValueError(f"has {key}, which is unknown.{closest(key, allowed)} Allowed: {', '.join(allowed)}.")
        return self


class EnsembleParams(Section):
    members: Annotated[tuple[MemberParams, ...], Field(strict=False), AfterValidator(_several)]
    """The annotators that vote, each with its own values for keys of `annotate`, e.g. {annotator: openai, openai:
    {model: a}}."""
    tie_band: Annotated[float, Field(ge=0.0, lt=0.5, allow_inf_nan=False)] = 0.0
    """Mean probabilities closer to 1/2 than this are ties."""


class ProbeParams(Section):
    """Questions with known answers, asked before any pair (`laurel annotate probe` asks them at any time)."""

    min_score: Probability | None = None
    """Minimum share of correct answers; 0: ask and only report the score; null: do not ask."""
    success_questions: Annotated[int, Field(ge=0, le=1000)] = 16
    """Maximum number of questions that ask whether a caption of success at the task is better than another caption; 0:
    none. Each adds one pair, which is asked first. gates.min_success_preferred sets the share that must be answered
    correctly."""


class StopParams(Section):
    """When to stop before n_pairs; the rule is checked after each round."""

    rule: Literal["none", "accuracy", "rank"] = "none"
    """accuracy: stop when the accuracy on held-out pairs no longer rises; rank: when the order of the captions no
    longer changes."""
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)] = 0.01
    """accuracy: smaller gains count as none; rank: a correlation between successive rounds closer to 1 than this counts
    as no change."""
    patience: Count = 3
    """Number of consecutive rounds without gain or change after which annotation stops."""
    held_out: Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)] = 0.1
    """accuracy only: share of a round that is drawn uniformly for measuring accuracy; these pairs become labels,
    too."""


class AnnotateParams(PluggedSection):
    plugins = ANNOTATORS
    chooser = "annotator"
    key = "annotate"

    annotator: Annotated[str, BeforeValidator(_annotator), listed(ANNOTATORS)] = "embedding"
    """The annotator: embedding (a sentence encoder), openai (a chat server), huggingface (a chat model in this
    process), scripted (a simulated teacher), ensemble (several vote), or another package's; its settings are in the
    section of the same name.
    """
    n_pairs: Count = 2000
    """Number of pairs to judge; fewer if there are fewer distinct pairs."""
    sampler: Literal["uniform", "frequency", "information", "disagreement", "ranking", "nearby"] = "uniform"
    """uniform: all pairs of distinct segments are equally likely; frequency: weighted by how often segments occurred.
    The others depend on the labels so far. information: pairs with the most expected information about a utility of the
    captions' embeddings; disagreement: with the most disagreement in an ensemble; ranking: with the most information
    about the order, as in a sort, without embeddings; nearby: with neighbouring ranks."""
    round_pairs: Count = 200
    """Pairs per round; no effect unless the sampler or the stopping rule depends on labels."""
    stop: StopParams = StopParams()
    embedding: EmbeddingParams = EmbeddingParams()
    scripted: ScriptedParams = ScriptedParams()
    language_model: LanguageModelParams = LanguageModelParams()
    openai: OpenAIParams | None = None
    """Settings of the annotator openai, which needs at least `model`."""
    huggingface: HuggingFaceParams = HuggingFaceParams()
    budget: BudgetParams = BudgetParams()
    """Settings of annotators that ask a chat model, such as openai and huggingface."""
    ensemble: EnsembleParams | None = None
    """Settings of the annotator ensemble, which needs at least two `members`."""
    probe: ProbeParams = ProbeParams()
    max_failure_rate: Probability = 0.05
    """The stage stops if more than this share of pairs have no label because the annotator failed (status incomplete,
    parse_failed or api_failed), or more than this share of answers are missing or cannot be parsed."""
    gold: FilePath | None = None
    """A file of human labels, as written by `laurel annotate review`, to compare labels with."""
    gates: GateParams = GateParams()
    feedback_seeds: Count = Field(default=1, exclude_if=lambda number: number == 1)
    """Number of label sets, each with its own pairs and the rewards learned from them. The agent with seed s uses set
    number s modulo this, so intervals over agents include variance between label sets; all of it only with as many sets
    as seeds, since seeds that share a set are not independent."""
    judges: dict[str, Overrides] = Field(default={}, exclude_if=lambda judges: not judges)
    """Further annotators in the same run, for rewards that name one as their `judge`: name -> keys that differ from
    this section, e.g. {teacher: {annotator: scripted}}."""

    @property
    def section(self) -> Any:
        """The section of the annotator in use."""
        return self.section_of(self.annotator)

    @property
    def voters(self) -> tuple[AnnotateParams, ...]:
        """The params of each annotator: the members of an ensemble, otherwise only these."""
        if self.annotator != ENSEMBLE or self.ensemble is None:
            return (self,)
        return tuple(self.of_member(number) for number in range(len(self.ensemble.members)))

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each voter's vote."""
        if self.annotator != ENSEMBLE or self.ensemble is None:
            return (1.0,)
        return tuple(member.weight for member in self.ensemble.members)

    @property
    def tie_band(self) -> float:
        """Distance from 1/2 within which the voters' mean is a tie."""
        return self.ensemble.tie_band if self.annotator == ENSEMBLE and self.ensemble is not None else 0.0

    def of_judge(self, name: str) -> AnnotateParams:
        """Return the params of a judge: MAIN, or one of `judges`."""
        if name == MAIN:
            return self
        single = self.model_copy(update={"judges": {}, "feedback_seeds": 1})
        return single.overridden(self.judges[name], f"annotate.judges.{name}")

    def judge_named(self, name: str, key: str) -> AnnotateParams:
        """Return the params of the judge that a setting names.

        Args:
            key: the setting, for the error.

        Raises:
            ParamsError: no judge has that name.
        """
        known = (MAIN, *self.judges)
        if name not in known:
            raise ParamsError(f"{key} is {name}, but must be one of {', '.join(known)}.{closest(name, known)}")
        return self.of_judge(name)

    @property
    def all_judges(self) -> dict[str, AnnotateParams]:
        """All judges by name, this section among them."""
        return {name: self.of_judge(name) for name in (MAIN, *self.judges)}

    @property
    def all_voters(self) -> tuple[AnnotateParams, ...]:
        """The params of each annotator of each judge."""
        return tuple(voter for judge in self.all_judges.values() for voter in judge.voters)

    @property
    def adaptive(self) -> bool:
        """Whether the sampler depends on the labels so far."""
        return self.sampler not in ("uniform", "frequency")

    @property
    def drawn_by(self) -> str:
        """The sampler before there are labels: the configured one, or uniform where that depends on labels."""
        return "uniform" if self.adaptive else self.sampler

    @property
    def in_rounds(self) -> bool:
        """Whether the choice of pairs depends on labels."""
        return self.adaptive or self.stop.rule != "none"

    @property
    def api_keys(self) -> tuple[str, ...]:
        """Environment variables that hold the keys of the servers that are asked."""
        return tuple(dict.fromkeys(name for chat in self._chats for name in chat.variables))

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses of the servers that are asked, OpenAI's own left out."""
        return tuple(dict.fromkeys(server for chat in self._chats for server in chat.servers))

    @property
    def _chats(self) -> tuple[ChatSection, ...]:
        return tuple(voter.section for voter in self.all_voters if isinstance(voter.section, ChatSection))

    @property
    def keeps_responses(self) -> bool:
        """Whether `language_model.responses` is written to."""
        return bool(self._chats)

    @model_validator(mode="after")
    def _openai_has_model(self) -> AnnotateParams:
        if self.annotator == "openai" and self.openai is None:
            raise ValueError("has annotator openai and so needs `openai.model`, as the server names it.")
        return self

    @field_validator("judges")
    @classmethod
    def _judges_have_names(cls, judges: dict[str, Overrides]) -> dict[str, Overrides]:
        for name in judges:
            if name == MAIN or not NAME.fullmatch(name):
                raise ValueError(f"has a judge {shown(name)}, but names are letters, digits, _ and -, and not {MAIN}.")
        return judges

    @model_validator(mode="after")
    def _judges_are_annotators(self) -> AnnotateParams:
        for name, settings in self.judges.items():
            if shared := SHARED.intersection(settings):
                raise ValueError(f"has judges.{name}.{min(shared)}, which all judges share: set it once in annotate.")
            asking = settings.get("language_model")
            if isinstance(asking, dict) and "responses" in asking:
                raise ValueError(f"has judges.{name}.language_model.responses, which all judges share: set it once.")
            try:
                self.of_judge(name)
            except ParamsError as error:
                raise ValueError(f"has an invalid judge: {' '.join(str(error).splitlines())}") from None
        return self

    @model_validator(mode="after")
    def _members_are_annotators(self) -> AnnotateParams:
        if self.ensemble is None:
            if self.annotator == ENSEMBLE:
                raise ValueError("has annotator ensemble and so needs `ensemble.members`, the annotators that vote.")
            return self
        try:
            for number, member in enumerate(self.ensemble.members):
                self.of_member(number)
                if "responses" in member.language_model:
                    raise ParamsError(f"ensemble.members[{number}]: responses is shared by all members: set it once.")
        except ParamsError as error:
            raise ValueError(f"has an invalid member: {' '.join(str(error).splitlines())}") from None
        return self

    def of_member(self, number: int) -> AnnotateParams:
        """Return the params of a member of the ensemble.

        Raises:
            ParamsError: its own settings are not allowed.
        """
        assert self.ensemble is not None
        member = self.ensemble.members[number]
        changes = member.model_dump(exclude={"weight"}) | {"ensemble": None}
        return self.overridden({k: v for k, v in changes.items() if v != {}}, f"ensemble.members[{number}]")

    def overridden(self, changes: Mapping[str, JsonValue], source: str) -> AnnotateParams:
        """Return the same params with some keys changed, keys of sections included.

        Args:
            changes: key -> value; for a section, key -> {key -> value}.
            source: origin of the changes, for errors.

        Raises:
            ParamsError: the changes are not allowed; one sentence for each.
        """
        try:
            changed = AnnotateParams.model_validate(merged(self.model_dump(mode="json"), changes))
            return changed.model_copy(update={"budget": changed.budget.kept_in(self.budget.ledger)})
        except ValidationError as error:
            raise ParamsError(sentences(source, AnnotateParams, error)) from None
