"""The sections `agent.language_model` and `agent.glam`: a causal language model that is trained to act on words."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from laurel.params.algorithms import AlgorithmParams, ClippedParams
from laurel.params.fields import Count, NonNegative, Positive, Probability
from laurel.params.judges import ServeParams, is_here

TINY = "tiny"
"""The untrained model that needs no download."""
BETAS = {"dpo": 0.5, "kto": 0.1, "simpo": 2.0, "infonce": 2.0, "grpo": 0.0, "rloo": 0.0}
"""Loss -> beta where none is given."""
LORA_RANK = 16
MOST_SERVED = 512
"""Highest rank of LoRA weights that vLLM takes."""


class TunedModelParams(AlgorithmParams):
    """A causal language model that is trained to act on states in words, and what it reads."""

    model: str = TINY
    """A directory, or a name on the Hugging Face hub, of a causal language model with a chat template; smollm2, which
    `make language-model` puts on this machine; or tiny, an untrained Llama of two layers."""
    lora_rank: Annotated[int, Field(ge=0)] | None = None
    """Rank of the LoRA weights, the only ones trained; 0 trains the whole model; null: 16, and 0 for tiny."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the model's weights."""
    prompt: str | None = None
    """What the model reads of a state: brief, bare (brief without the system message that a chat template adds),
    instruct, or a file of your own that ends in .jinja; null: brief for tiny, instruct for others."""
    goal: str | None = None
    """What to act for; null: the environment's own goal."""

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
    """`vllm serve`, which samples the proposals of rounds by the LoRA weights that each begins with."""

    base_url: Annotated[str, AfterValidator(_here)] = "http://127.0.0.1:8000/v1"
    """Its address, on this machine; a server of the model that listens there already is asked instead."""
    gpus: Count = 1
    """GPUs that a copy of the model is divided among."""
    copies: Count | None = None
    """Copies of the model, among which proposals are shared out; null: as many as there are GPUs for."""
    gpu_memory: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of each GPU's memory that it takes; the model that is trained needs some of the first."""


class LanguageActorParams(TunedModelParams):
    algorithm: ClassVar[str] = "language_model"
    every_update: ClassVar[bool] = True
    strategy: Literal["none", "menu", "free"] = "none"
    """Whether the model first names a strategy, one of `strategies` or in its own words, and then moves by it."""
    strategies: tuple[str, ...] = Field(default=(), strict=False)
    """strategy: menu only: what to choose from."""
    answer: Literal["moves", "action", "code", "json"] = "moves"
    """What an answer looks like: moves with commas between them; a single action; a block of code, a move a line; or a
    JSON object with the field moves."""
    constrained: bool = True
    """Let the model write only answers that can be read; false: anything, and an answer that cannot be read is a random
    action and worse than all others."""
    max_tokens: Count = 48
    """Tokens at most of an answer that is not constrained, and of a strategy in the model's own words."""
    temperature: Positive = 1.0
    """Temperature of proposals, and of acting unless evaluate.greedy."""
    n_envs: Count = 4096
    n_steps: Count = 4
    """Steps of each environment in a round."""
    gamma: Probability = 0.95
    gae_lambda: Probability = 1.0
    """Lambda of the returns that the critic is fitted to: 1 is Monte Carlo, lower ones are TD(lambda)."""
    imitation_rounds: Count = 1
    """Rounds of random actions at first: the model learns from them how to write answers, and the critic what states
    are worth."""
    imitation_examples: Count = 1500
    """Answers of a round that are imitated at most."""
    keep_best: bool = False
    """Keep the best answer to each state so far, a random one too: only it is imitated at first, and later proposals
    are compared with it. It costs fewest proposals and steps, where outcomes are deterministic."""
    imitation_share: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of a random round's answers, those of the highest score, that is imitated; 1: any of them. Not with
    keep_best."""
    critic: Literal["encoder", "table"] = "encoder"
    """What values states: ridge regression on a sentence encoder's vectors of their texts, or a mean for each text."""
    encoder: str | None = None
    """critic: encoder only: a sentence-transformers model, a directory or a name on the hub; null: the packaged one."""
    refresh_critic: bool = False
    """Refit the critic after every round; false: it stays as the imitation rounds left it."""
    score: Literal["advantage", "return"] = "advantage"
    """What proposals in a state are compared by: r + gamma V(s') - V(s), or the return of the trajectory that they
    began."""
    proposals: Annotated[int, Field(ge=2)] = 8
    """Proposals for one state that are compared with each other."""
    pairing: Literal["best_worst", "all"] = "best_worst"
    """Pairs of these proposals: the best with the worst, or each with all that are worse (a ranking of the list)."""
    margin: NonNegative = 0.3
    """How much the chosen answer of a pair must exceed the other's, in standard deviations of the round's scores."""
    memory_rounds: Count = 1
    """Rounds whose proposals are compared with each other."""
    max_unread: Probability = 0.9
    """Share of a round's answers that cannot be read, above which training stops."""
    max_alone: Probability = 0.9
    """Share of a round's proposals for states that were met once, above which training stops."""
    loss: Literal["dpo", "kto", "simpo", "infonce", "grpo", "rloo"] = "simpo"
    """What is learned from proposals, by TRL's trainers: from pairs, or from groups: the best answer against all others
    of its group at once (infonce), or each by how far it is from its group's mean (grpo, rloo)."""
    learning_rate: Positive = 5e-4
    """Learning rate of the optimiser (AdamW)."""
    anneal: bool = True
    """Lower the step size linearly over the rounds, to nearly 0 in the last one."""
    batch_size: Count = 32
    """Of a gradient step: pairs; of infonce, groups; of grpo and rloo, answers."""
    n_epochs: Count = 2
    """Passes over a round's pairs or groups."""
    beta: NonNegative | None = None
    """Beta of the loss; null: 2 for simpo and infonce (where it is 1 / temperature), 0.5 for dpo, 0.1 for kto, 0 for
    grpo and rloo, where it weighs the KL."""
    simpo_gamma: NonNegative = 0.5
    """simpo only: margin by which the chosen answer should be likelier."""
    imitation: NonNegative = 0.5
    """Not for grpo and rloo: weight of the chosen answer's negative log-likelihood."""
    max_grad_norm: Positive = 1.0
    serve: ProposalServerParams | None = Field(default=None, exclude_if=lambda serve: serve is None)
    """Sample proposals by vLLM on this machine, e.g. {}; null: by transformers, in this process. Its answers are not
    the same in every run. It is the command vllm of the PATH, or the one that LAUREL_VLLM names."""

    processes: Count = Field(default=1, exclude_if=lambda processes: processes == 1)
    """Processes that share each batch of tuning, on GPUs one per GPU; they load the model anew in each round."""
    shards: Annotated[int, Field(ge=1, le=100)] = Field(default=1, exclude_if=lambda shards: shards == 1)
    """Equal parts of n_envs with random streams of their own. In the pipeline on Kubeflow or Vertex AI each samples its
    proposals in a task of its own; elsewhere one after another, with the same result."""

    @model_validator(mode="after")
    def _batch_is_shared_equally(self) -> LanguageActorParams:
        groups = self.loss in ("grpo", "rloo")
        rows = max(1, self.batch_size // self.proposals) if groups else self.batch_size
        if rows % self.processes:
            per_step = f"{rows} groups a step (batch_size / proposals)" if groups else f"batch_size {rows}"
            more = math.ceil(rows / self.processes) * self.processes * (self.proposals if groups else 1)
            raise ValueError(
                f"has processes {self.processes} and {per_step}, which they cannot share equally: set batch_size to "
                f"{more}, for instance."
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
                "has serve, but trains the whole model, and a server takes new weights only as LoRA: "
                + ("take another model than tiny." if self.model == TINY else f"set lora_rank, e.g. to {LORA_RANK}.")
            )
        if self.serve is not None and self.rank > MOST_SERVED:
            raise ValueError(f"has serve and lora_rank {self.rank}, but vLLM takes ranks up to {MOST_SERVED}.")
        return self

    @model_validator(mode="after")
    def _menu_has_strategies(self) -> LanguageActorParams:
        if (self.strategy == "menu") != bool(self.strategies):
            raise ValueError("has strategy: menu without strategies, or strategies without it: give both or neither.")
        return self

    @model_validator(mode="after")
    def _best_was_drawn_before(self) -> LanguageActorParams:
        if self.keep_best and self.loss in ("grpo", "rloo"):
            raise ValueError(
                f"has keep_best, but {self.loss} learns only from answers that the model itself drew: leave it out."
            )
        return self


class GLAMParams(ClippedParams, TunedModelParams):
    algorithm: ClassVar[str] = "glam"
    n_envs: Count = 32
    batch_size: Count = 128
    learning_rate: Positive = 3e-4
    anneal: bool = True
    """Lower the learning rate linearly to zero over the run; without it, a solved task may be unlearned again."""

    @property
    def asked(self) -> LanguageActorParams:
        """How the model is loaded and asked: for the name of one action."""
        names = ("model", "lora_rank", "dtype", "prompt", "goal")
        return LanguageActorParams(answer="action", **{name: getattr(self, name) for name in names})
