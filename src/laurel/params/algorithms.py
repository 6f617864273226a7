"""The sections of `agent` that belong to one algorithm each: how it collects and how it learns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, Field, JsonValue, model_validator

from laurel.params.fields import Count, ModelName, NonNegative, Positive, Probability, Section, Widths
from laurel.params.kinds import known_actor

ADVANTAGE_EPSILON = 1e-8
"""Default of advantage_epsilon, as in other implementations of PPO: it only avoids a division by zero."""


class Helper(NamedTuple):
    """An actor that helps agents, by its kind and its options."""

    actor: str
    options: Mapping[str, Any]
    key: str
    """The section that names it, for messages."""
    what: str
    """What it gives: hints or subgoals."""
    share: float = 1.0
    """Fraction of the training over which it is asked."""


class LearnerParams(Section):
    """Base class of the settings of a training algorithm, Laurel's or another library's."""

    pays: ClassVar[bool] = False
    """Whether the algorithm adds a reward of its own to those of the arm."""
    every_update: ClassVar[bool] = False
    """Whether updates are so slow that each is checkpointed when agent.checkpoint_steps is null."""
    searched: ClassVar[tuple[str, ...]] = ()
    """What `laurel tune` searches by default, relative to the section; parameters that the section lacks are left
    out."""
    n_envs: Count

    @property
    @abstractmethod
    def trainer_name(self) -> str:
        """Name of the training algorithm in reports, e.g. ppo or SAC (sb3)."""

    @property
    @abstractmethod
    def learned_discount(self) -> float:
        """The discount that agents learn with."""

    @property
    def helper(self) -> Helper | None:
        """The actor that helps during training; None without any, or if the algorithm takes none."""
        return None

    @property
    def planner(self) -> Helper | None:
        """The actor that helps whenever a trained agent acts; None for most."""
        return None

    @property
    def helpers(self) -> tuple[Helper, ...]:
        """The helper and the planner, if any."""
        return tuple(helper for helper in (self.helper, self.planner) if helper is not None)

    @property
    def sampled_in(self) -> int:
        """Number of shards in which an update is sampled; 1 for most algorithms."""
        return int(getattr(self, "shards", 1))


class AlgorithmParams(LearnerParams):
    """Settings common to all algorithms; an algorithm adds its own and gives each a default."""

    algorithm: ClassVar[str]
    """The algorithm, as `agent.algorithm` names it."""
    searched: ClassVar[tuple[str, ...]] = ("learning_rate=log:0.0003:0.01", "entropy_coef=log:0.001:0.1")
    n_steps: Count
    """Steps of each environment per update."""

    @property
    def trainer_name(self) -> str:
        return self.algorithm

    @property
    def helper(self) -> Helper | None:
        hints: HintsParams | None = getattr(self, "hints", None)  # of another package's algorithm, too
        key = f"agent.{self.algorithm}.hints"
        return None if hints is None else Helper(hints.actor, hints.options, key, "hints", hints.share)

    @property
    def learned_discount(self) -> float:
        return float(getattr(self, "gamma", 1.0))


class HintsParams(Section):
    """An actor whose log-probabilities are added to the network's logits early in training."""

    actor: Annotated[str, AfterValidator(known_actor)] = "llm_policy"
    """Kind of the actor; it must provide the probability of each discrete action."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the actor, e.g. {judge: player}."""
    weight: Positive = 1.0
    """Initial weight of its log-probabilities."""
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Fraction of the run over which the weight decays to 0."""
    shuffled: bool = Field(default=False, exclude_if=lambda shuffled: not shuffled)
    """A control: in each state, permute the actor's probabilities over the actions, with a permutation drawn per agent.
    Such hints have the same strength but carry no information."""


class ClippedParams(AlgorithmParams):
    """Settings common to algorithms with PPO's clipped loss."""

    n_envs: Count = 64
    n_steps: Count = 32
    """Steps of each environment per update."""
    n_epochs: Count = 3
    batch_size: Count = 512
    learning_rate: Positive = 2e-3
    anneal: bool = False
    """Lower the learning rate linearly to zero over the run."""
    gamma: Probability = 0.99
    gae_lambda: Probability = 0.95
    episodic: bool = Field(default=True, exclude_if=lambda episodic: episodic)
    """false: where the task ends an episode, bootstrap from the start of the next one (non-episodic returns, Burda et
    al. 2018). Meant for agents without extrinsic reward, which would earn nothing more after they reach the goal."""
    clip_range: Positive = 0.2
    entropy_coef: NonNegative = 0.01
    value_coef: NonNegative = 0.5
    max_grad_norm: Positive = 0.5
    advantage_epsilon: Positive = Field(default=ADVANTAGE_EPSILON, exclude_if=lambda value: value == ADVANTAGE_EPSILON)
    """Added to the standard deviation by which a minibatch's advantages are divided. Where a task is solved, they are
    little more than noise, which this division enlarges, so that an agent may lose the task again. In
    MiniGrid-Empty-8x8, whose return is at most 1, 0.1 to 0.3 helped."""


class PPOParams(ClippedParams):
    algorithm: ClassVar[str] = "ppo"
    network: Literal["auto", "mlp", "cnn"] = "auto"
    """mlp: layers on all features; cnn: filters over images first; auto: cnn where an image has 16 by 16 or more."""
    recurrent: bool = False
    """Remember earlier observations of the episode with a gated recurrent unit (GRU) as wide as the last of
    `hidden`."""
    hidden: Widths = (64, 64)
    hints: HintsParams | None = Field(default=None, exclude_if=lambda hints: hints is None)
    """An actor that guides exploration, such as a language model; null: none. For discrete actions and an MLP only."""

    @model_validator(mode="after")
    def _hints_go_to_plain_layers(self) -> PPOParams:
        if self.hints is not None and (self.recurrent or self.network == "cnn"):
            raise ValueError("has hints, which work only with an MLP: leave out recurrent and network: cnn.")
        return self

    @model_validator(mode="after")
    def _memory_has_a_width(self) -> PPOParams:
        if self.recurrent and not self.hidden:
            raise ValueError("is recurrent, so hidden must have at least one width, which is that of the GRU.")
        return self


class SubgoalParams(ClippedParams):
    algorithm: ClassVar[str] = "subgoals"
    pays: ClassVar[bool] = True
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the actor planner, which names the subgoals, e.g. {judge: player} or {plan: random}."""
    practice: Literal["planned", "random"] = "planned"
    """How subgoals are chosen during training. planned: by the planner, as when the trained agent acts; random: drawn,
    so that no chat model is asked in training."""
    reward: Positive = 1.0
    """Reward of a step that reaches the subgoal, added to the arm's."""
    hidden: Widths = (64, 64)

    @property
    def helper(self) -> Helper | None:
        drawn = {"plan": "random"} if self.practice == "random" else {}
        return Helper("planner", {**self.options, **drawn}, "agent.subgoals.options", "subgoals")

    @property
    def planner(self) -> Helper | None:
        return Helper("planner", self.options, "agent.subgoals.options", "subgoals")


class DQNParams(AlgorithmParams):
    algorithm: ClassVar[str] = "dqn"
    n_envs: Count = 8
    n_steps: Count = 8
    """Steps of each environment per round of learning."""
    gradient_steps: Count = 8
    """Minibatches per round of learning."""
    batch_size: Count = 128
    learning_rate: Positive = 1e-3
    anneal: bool = True
    """Lower the learning rate linearly to zero over the run."""
    gamma: Probability = 0.99
    buffer_size: Count = 100_000
    """Size of the replay buffer, in steps, including those that only begin an episode."""
    learning_starts: Count = 1_000
    """Steps before the first round of learning; with a full replay buffer it starts earlier."""
    target_every: Count = 30
    """Gradient steps between two updates of the target network."""
    double: bool = True
    """Choose the next action with the online network and evaluate it with the target network (double DQN)."""
    multi_step: Count = 3
    """n of the n-step returns in targets."""
    prioritized: bool = False
    """Sample steps by their TD error (prioritised replay) instead of uniformly."""
    priority_alpha: Probability = 0.6
    """prioritized only: exponent of the priorities; 0 is uniform, 1 proportional to the error."""
    priority_beta: Probability = 0.4
    """prioritized only: initial exponent of the importance weights; at the end it is 1."""
    epsilon_start: Probability = 1.0
    """Initial fraction of random actions."""
    epsilon_end: Probability = 0.02
    """Final fraction of random actions, also used in evaluation unless evaluate.greedy."""
    epsilon_decay: Positive = 0.1
    """Fraction of the run over which epsilon decays from its initial to its final value."""
    max_grad_norm: Positive = 10.0
    layer_norm: bool = True
    """Layer normalisation of the hidden layers; without it, a network that has learned a task may forget it again."""
    hidden: Widths = (128, 128)

    @model_validator(mode="after")
    def _memory_fills_up(self) -> DQNParams:
        if self.learning_starts > self.buffer_size:
            raise ValueError(
                f"has learning_starts {self.learning_starts}, but a replay buffer of only {self.buffer_size} "
                "(buffer_size), so learning would never begin: lower learning_starts or raise buffer_size."
            )
        return self


class ReinforceParams(AlgorithmParams):
    algorithm: ClassVar[str] = "reinforce"
    n_envs: Count = 16
    n_steps: Count = 64
    """Steps of each environment per update, which learns from the episodes that ended in them."""
    learning_rate: Positive = 5e-3
    gamma: Probability = 0.99
    entropy_coef: NonNegative = 0.01
    value_coef: NonNegative = 0.5
    """Weight of the baseline's loss."""
    max_grad_norm: Positive = 1.0
    hidden: Widths = (64, 64)


class A2CParams(AlgorithmParams):
    algorithm: ClassVar[str] = "a2c"
    n_envs: Count = 8
    n_steps: Count = 64
    """Steps of each environment per update."""
    learning_rate: Positive = 6e-3
    anneal: bool = True
    """Lower the learning rate linearly to zero over the run."""
    gamma: Probability = 0.99
    gae_lambda: Probability = 1.0
    """1: returns over the rest of the rollout, as in the paper; lower: generalised advantage estimation."""
    entropy_coef: NonNegative = 0.01
    value_coef: NonNegative = 1.0
    max_grad_norm: Positive = 0.5
    hidden: Widths = (64, 64)


class TabularParams(AlgorithmParams):
    algorithm: ClassVar[str] = "tabular"
    method: Literal["q_learning", "sarsa", "expected_sarsa", "monte_carlo", "n_step_sarsa", "tree_backup"] = (
        "q_learning"
    )
    """Which tabular algorithm."""
    n_envs: Count = 8
    """Environments, which all update one table."""
    n_steps: Count = 16
    """Steps of each environment per round of learning."""
    gamma: Probability = 0.99
    epsilon: Probability = 0.1
    """Fraction of random actions, also in evaluation unless evaluate.greedy."""
    step_size: Probability = 0.1
    """Step size towards the target; 0: each entry is the average of its targets."""
    initial: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """Initial value of every entry; optimistic values make the agent explore."""
    backup_steps: Count = 4
    """n_step_sarsa and tree_backup only: n of the n-step targets."""

    @property
    def trainer_name(self) -> str:
        return self.method


class BanditParams(AlgorithmParams):
    """Bernoulli Thompson sampling is not offered: it needs rewards of 0 or 1, which shaped rewards are not."""

    algorithm: ClassVar[str] = "bandit"
    method: Literal["reward_averaging", "ucb", "gradient", "gaussian_thompson"] = "reward_averaging"
    """Which bandit algorithm."""
    n_envs: Count = 8
    """Environments, which all share the same bandit arms, the actions."""
    n_steps: Count = 4
    """Steps of each environment per round of learning."""
    epsilon: Probability = 0.1
    """reward_averaging only: fraction of random actions, also in evaluation unless evaluate.greedy."""
    initial: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """reward_averaging and gaussian_thompson only: initial estimate of every arm's reward; optimistic values make the
    agent try all arms."""
    step_size: Probability = 0.1
    """All but gaussian_thompson: step size of an estimate or a preference; 0: estimates are sample averages."""
    c: NonNegative = 2.0
    """ucb only: weight of the confidence term."""
    prior_deviation: Positive = 1.0
    """gaussian_thompson only: standard deviation of the prior over an arm's mean reward."""
    noise: Positive = 1.0
    """gaussian_thompson only: standard deviation of an arm's rewards."""

    @property
    def trainer_name(self) -> str:
        return f"{self.method} (bandit)"

    @model_validator(mode="after")
    def _preferences_move(self) -> BanditParams:
        if self.method == "gradient" and not self.step_size:
            raise ValueError("has method gradient, which cannot use sample averages: set step_size above 0, e.g. 0.1.")
        return self


class GroupParams(AlgorithmParams):
    """Settings common to grpo and rloo, which sample several completions of each prompt and compare them."""

    algorithm: ClassVar[Literal["grpo", "rloo"]]
    model: ModelName = "smollm2"
    """The causal language model that is trained: smollm2 (`make language-model`), a directory, or a name on the hub."""
    rank: Count = 16
    """Rank of the LoRA weights, the only ones trained."""
    n_envs: Count = 32
    """Completions sampled per update; a multiple of `group`."""
    n_steps: Count = 2
    """Steps of each environment per update: a completion and the reset after it take one each."""
    group: Annotated[int, Field(ge=2)] = 8
    """Completions per prompt."""
    max_tokens: Count = 24
    """Maximum number of tokens per completion."""
    temperature: Positive = 0.7
    """Temperature of sampling."""
    stop: str = '"\n'
    """Stop characters: any of them ends a completion and is not part of it."""
    learning_rate: Positive = 5e-4
    batch_size: Count = 16
    """Completions per gradient computation; this only affects memory."""
    beta: NonNegative = 0.05
    """Weight of the KL divergence from the frozen model."""
    max_kl: Positive | None = None
    """No update is made where the KL divergence from the frozen model, estimated from the update's own completions,
    exceeds this, in nats per completion; learning goes on if a later estimate is below it, so the divergence may end
    somewhat above. null: no limit."""
    max_grad_norm: Positive = 1.0

    @model_validator(mode="after")
    def _groups_are_whole(self) -> GroupParams:
        if self.n_envs % self.group or self.batch_size % self.group or self.n_envs % self.batch_size:
            raise ValueError(
                f"has n_envs {self.n_envs}, batch_size {self.batch_size} and group {self.group}: n_envs must be a "
                "multiple of batch_size, and batch_size one of group."
            )
        if self.n_steps % 2:
            raise ValueError(f"has n_steps {self.n_steps}, which must be even: every other step is a reset.")
        return self


class GRPOParams(GroupParams):
    algorithm = "grpo"


class RLOOParams(GroupParams):
    algorithm = "rloo"
