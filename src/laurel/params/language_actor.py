"""The sections `agent.language_model` and `agent.glam`: a causal language model that is trained to act on words."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from laurel.params.algorithms import AlgorithmParams, ClippedParams
from laurel.params.fields import Count, ModelName, NonNegative, Positive, Probability
from laurel.params.judges import ServeParams, is_here

TINY = "tiny"
"""The untrained model that needs no download."""
BETAS = {"dpo": 0.5, "kto": 0.1, "simpo": 2.0, "infonce": 2.0, "grpo": 0.0, "rloo": 0.0}
"""Loss -> beta where none is given."""
GROUPED = ("grpo", "rloo")
"""Losses of groups of the model's own answers, whose batch_size counts answers."""
LORA_RANK = 16
MOST_SERVED = 512
"""Maximum LoRA rank that vLLM supports."""


class TunedModelParams(AlgorithmParams):
    """A causal language model that is trained to act on states in words, and its prompt."""

    model: ModelName = TINY
    """A causal language model with a chat template: a directory, or a name on the Hugging Face hub; smollm2, which
    `make language-model` installs on this machine; or tiny, an untrained Llama with two layers."""
    lora_rank: Annotated[int, Field(ge=0)] | None = None
    """Rank of the LoRA weights, the only ones trained; 0 trains the whole model; null: 16, and 0 for tiny."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the model's weights."""
    prompt: str | None = None
    """Prompt that presents a state to the model: brief, bare (brief without the system message that a chat template
    adds), instruct, or your own .jinja file; null: brief for tiny, instruct for others."""
    goal: str | None = None
    """Goal in the prompt; null: the environment's own goal."""

    @property
    def rank(self) -> int:
        """Rank of the LoRA weights; 0: the whole model is trained."""
        return self.lora_rank if self.lora_rank is not None else 0 if self.model == TINY else LORA_RANK

    @property
    def prompt_name(self) -> str:
        return self.prompt or ("brief" if self.model == TINY else "instruct")

    @model_validator(mode="after")
    def _adapter_is_of_a_model(self) -> Self:
        if self.model == TINY and self.rank:
            raise ValueError(f"has lora_rank {self.lora_rank}, but the model tiny is untrained: train all of it (0).")
        return self


def _here(value: str) -> str:
    if not is_here(value):
        raise ValueError("must be an address of this machine, such as http://127.0.0.1:8000/v1.")
    return value.rstrip("/")


class ProposalServerParams(ServeParams):
    """`vllm serve`, which samples each round's proposals with the LoRA weights at the start of the round."""

    base_url: Annotated[str, AfterValidator(_here)] = "http://127.0.0.1:8000/v1"
    """Its address on this machine; if a server of the model already listens there, it is used instead."""
    gpus: Count = 1
    """GPUs per copy of the model (tensor parallelism)."""
    copies: Count | None = None
    """Copies of the model, which share the proposals (data parallelism); null: as many as there are GPUs for."""
    gpu_memory: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Fraction of each GPU's memory that it uses; the model in training needs part of the first GPU's."""


class LanguageActorParams(TunedModelParams):
    algorithm: ClassVar[str] = "language_model"
    every_update: ClassVar[bool] = True
    strategy: Literal["none", "menu", "free"] = "none"
    """Whether the model first names a strategy, one of `strategies` or in its own words, and then moves that follow
    it."""
    strategies: tuple[str, ...] = Field(default=(), strict=False)
    """strategy: menu only: the strategies to choose from."""
    answer: Literal["moves", "action", "code", "json"] = "moves"
    """Format of an answer: moves separated by commas; a single action; a block of code with a move per line; or a JSON
    object with the field moves."""
    constrained: bool = True
    """Constrain decoding to answers that can be parsed; false: no constraint, and an answer that cannot be parsed
    becomes a random action and ranks below all others."""
    max_tokens: Count = 48
    """Maximum number of tokens of an unconstrained answer, and of a strategy in the model's own words."""
    temperature: Positive = 1.0
    """Sampling temperature of proposals, and of evaluation unless evaluate.greedy."""
    n_envs: Count = 4096
    n_steps: Count = 4
    """Steps of each environment per round."""
    gamma: Probability = 0.95
    gae_lambda: Probability = 1.0
    """Lambda of the returns that the critic is fitted to: 1 is Monte Carlo, lower ones are TD(lambda)."""
    imitation_rounds: Count = 1
    """Initial rounds with random actions, from which the model learns the answer format and the critic the values of
    states."""
    imitation_examples: Count = 1500
    """Maximum number of answers per round that are imitated."""
    keep_best: bool = False
    """Keep the best answer to each state so far, including random ones: initially only these are imitated, and later
    proposals are compared with them. Needs the fewest proposals and steps if outcomes are deterministic."""
    imitation_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Fraction of a random round's answers that is imitated, those with the highest scores; 1: all. Not with
    keep_best."""
    critic: Literal["encoder", "table"] = "encoder"
    """Value function: ridge regression on a sentence encoder's embeddings of states, or a table of mean returns."""
    encoder: str | None = None
    """critic: encoder only: a sentence-transformers model, a directory or a name on the hub; null: the packaged one."""
    refresh_critic: bool = False
    """Refit the critic after every round; false: keep it fixed after the imitation rounds."""
    score: Literal["advantage", "return"] = "advantage"
    """Score by which proposals for a state are compared: r + gamma V(s') - V(s), or the return of the trajectory that
    they start."""
    proposals: Annotated[int, Field(ge=2)] = 8
    """Number of proposals per state that are compared."""
    pairing: Literal["best_worst", "all"] = "best_worst"
    """Which pairs of these proposals to train on: the best with the worst, or each with all worse ones (a ranking)."""
    margin: NonNegative = 0.3
    """Minimum difference in score between the answers of a pair, in standard deviations of the round's scores."""
    memory_rounds: Count = 1
    """Number of recent rounds whose proposals are compared with each other."""
    max_unread: Probability = 0.9
    """Training stops if more than this share of a round's answers cannot be parsed."""
    max_alone: Probability = 0.9
    """Training stops if more than this share of a round's answers are to prompts that occurred only once, such as those
    about states that were visited once."""
    loss: Literal["dpo", "kto", "simpo", "infonce", "grpo", "rloo"] = "simpo"
    """Loss, by TRL's trainers: on pairs, or on groups: the best answer against all others of its group (infonce), or
    each weighted by its difference from its group's mean (grpo, rloo)."""
    learning_rate: Positive = 5e-4
    """Learning rate of the optimiser (AdamW)."""
    anneal: bool = True
    """Lower the learning rate linearly over the rounds, to nearly 0 in the last one."""
    batch_size: Count = 32
    """Batch size of a gradient step: pairs; for infonce, groups; for grpo and rloo, answers. Batches of groups may be
    smaller, down to half, so that the fewest groups of a round are left over."""
    n_epochs: Count = 2
    """Epochs over a round's pairs or groups."""
    beta: NonNegative | None = None
    """Beta of the loss; null: 2 for simpo and infonce (where it is 1 / temperature), 0.5 for dpo, 0.1 for kto, 0 for
    grpo and rloo, where it is the weight of the KL divergence."""
    simpo_gamma: NonNegative = 0.5
    """simpo only: target margin between the chosen and the rejected answer."""
    imitation: NonNegative = 0.5
    """Weight of the chosen answer's negative log-likelihood; not for grpo and rloo."""
    max_grad_norm: Positive = 1.0
    serve: ProposalServerParams | None = Field(default=None, exclude_if=lambda serve: serve is None)
    """Sample proposals with vLLM on this machine, e.g. {}; null: with transformers in this process. vLLM's samples are
    not reproducible. The command is vllm on the PATH, or that of the environment variable LAUREL_VLLM."""

    processes: Count = Field(default=1, exclude_if=lambda processes: processes == 1)
    """Processes that share each training batch, one per GPU on GPUs; they load the model again in each round."""
    shards: Annotated[int, Field(ge=1, le=100)] = Field(default=1, exclude_if=lambda shards: shards == 1)
    """Equal parts of n_envs, each with its own random stream. On Kubeflow and Vertex AI each part samples its proposals
    in a task of its own; elsewhere one after another, with the same result."""

    @model_validator(mode="after")
    def _batch_is_shared_equally(self) -> LanguageActorParams:
        groups = self.loss in GROUPED
        rows = max(1, self.batch_size // self.proposals) if groups else self.batch_size
        if rows % self.processes:
            per_step = f"{rows} groups a step (batch_size / proposals)" if groups else f"batch_size {rows}"
            size = math.ceil(rows / self.processes) * self.processes * (self.proposals if groups else 1)
            raise ValueError(
                f"has processes {self.processes} and {per_step}, which they cannot share equally: set batch_size to "
                f"{size}, for instance."
            )
        return self

    @model_validator(mode="after")
    def _shards_are_equal(self) -> LanguageActorParams:
        if self.n_envs % self.shards:
            raise ValueError(f"has n_envs {self.n_envs}, which shards {self.shards} do not divide equally.")
        return self

    @model_validator(mode="after")
    def _served_by_adapter(self) -> LanguageActorParams:
        if self.serve is not None and not self.rank:
            raise ValueError(
                "has serve, but trains the whole model, while a server accepts new weights only as LoRA: "
                + ("use a model other than tiny." if self.model == TINY else f"set lora_rank, e.g. to {LORA_RANK}.")
            )
        if self.serve is not None and self.rank > MOST_SERVED:
            raise ValueError(f"has serve and lora_rank {self.rank}, but vLLM takes ranks up to {MOST_SERVED}.")
        return self

    @model_validator(mode="after")
    def _beta_weighs_the_loss(self) -> LanguageActorParams:
        if self.beta == 0 and BETAS[self.loss] > 0:
            raise ValueError(
                f"has beta 0, with which {self.loss} ignores all differences between answers: set it above 0, or "
                f"leave it out ({BETAS[self.loss]:g})."
            )
        return self

    @model_validator(mode="after")
    def _menu_has_strategies(self) -> LanguageActorParams:
        if (self.strategy == "menu") != bool(self.strategies):
            raise ValueError("needs both strategy: menu and strategies, or neither.")
        return self

    @model_validator(mode="after")
    def _groups_are_the_models_own(self) -> LanguageActorParams:
        if self.loss not in GROUPED:
            return self
        for name, default in (("keep_best", False), ("memory_rounds", 1)):
            if getattr(self, name) != default:
                raise ValueError(
                    f"has {name}, but {self.loss} learns only from answers that the model itself sampled in the "
                    f"round: leave {name} out."
                )
        return self


class GLAMParams(ClippedParams, TunedModelParams):
    algorithm: ClassVar[str] = "glam"
    n_envs: Count = 32
    batch_size: Count = 128
    learning_rate: Positive = 3e-4
    anneal: bool = True
    """Lower the learning rate linearly to zero over the run; without it, a solved task may be forgotten again."""

    @property
    def asked(self) -> LanguageActorParams:
        """The settings with which the model is loaded and asked for the name of one action."""
        names = ("model", "lora_rank", "dtype", "prompt", "goal")
        return LanguageActorParams(answer="action", **{name: getattr(self, name) for name in names})
