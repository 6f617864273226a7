"""The sections `shaping` and `agent`: how rewards are shaped, and which agents learn from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from laurel.errors import ParamsError
from laurel.params.algorithms import (
    A2CParams,
    BanditParams,
    DQNParams,
    LearnerParams,
    PPOParams,
    ReinforceParams,
    TabularParams,
)
from laurel.params.fields import Count, Device, NonNegative, Probability, Section, Seeds
from laurel.params.file import shown
from laurel.params.kinds import ALGORITHMS
from laurel.params.plugged import PluggedSection, listed, one_of
from laurel.params.sb3 import SB3Algorithm, SB3Params


class ShapingParams(Section):
    quantile: Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)] = 0.5
    """Threshold, as a quantile over distinct captions: normalised rewards at or below it become 0, others are reduced
    by it."""
    beta: NonNegative = 3.0
    """A caption's N-th occurrence in an episode earns 1/N^beta of its reward."""
    intrinsic: NonNegative = 0.1
    """Weight of the learned reward."""
    extrinsic: NonNegative = 1.0
    """Weight of the environment's reward."""
    form: Annotated[Literal["bonus", "potential"], Field(exclude_if=lambda form: form == "bonus")] = "bonus"
    """bonus: a caption earns its reward, which decreases with its count; potential: a step earns the difference in
    reward between successive captions, which does not change the optimal policies (beta has no effect)."""
    gamma: Annotated[Probability | None, Field(exclude_if=lambda gamma: gamma is None)] = None
    """form: potential only: discount of the next potential; null: the agent's gamma, as the theory requires."""

    def idle(self) -> Mapping[str, str]:
        """Return the keys that have no effect, each with the setting that makes it so."""
        return {"beta" if self.form == "potential" else "gamma": f"form {self.form}"}

    @property
    def discount(self) -> float:
        """Discount of the next potential."""
        return 1.0 if self.gamma is None else self.gamma

    def of_agent(self, gamma: float) -> ShapingParams:
        """Return these settings with the discount of the agent that learns, if a potential leaves it to the agent."""
        needed = self.form == "potential" and self.gamma is None
        return self.model_copy(update={"gamma": gamma}) if needed else self


def _algorithm(value: object) -> object:
    """Refuse an unknown algorithm; if it is one of Stable-Baselines3, say how to use that."""
    if isinstance(value, str) and value not in ALGORITHMS.kinds():
        named = next((name for name in get_args(SB3Algorithm) if name.casefold() == value.casefold()), None)
        if named is not None:
            raise ValueError(
                f"is {shown(value)}, an algorithm of Stable-Baselines3: write engine: sb3 and sb3: "
                f"{{algorithm: {named}}} instead. Laurel's own are {', '.join(ALGORITHMS.builtin())}."
            )
    return one_of(value, ALGORITHMS.kinds())


class CurriculumParams(Section):
    """A curriculum over the tasks of laurel/Tasks-v0: new episodes prefer tasks whose success rate changes most."""

    interest: str | None = None
    """The judge that says which tasks are interesting: main, the annotator of the section annotate, or one of
    annotate.judges; null: use only learning progress."""
    rate: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Rate of the moving averages of success over a task's episodes."""
    mastered: Probability = 0.5
    """Success rate from which a task counts as mastered; tasks that the judge finds boring in comparison get less
    weight."""
    boring: NonNegative = 0.001
    """Weight of a boring task."""


class AgentParams(PluggedSection):
    plugins = ALGORITHMS
    chooser = "algorithm"
    key = "agent"

    seeds: Seeds
    """Every arm is trained once with each of these seeds."""
    steps: Count
    """Environment steps of a training run."""
    algorithm: Annotated[str, BeforeValidator(_algorithm), listed(ALGORITHMS)] = "ppo"
    """The algorithm of all arms, Laurel's or another package's; the section of the same name has its settings."""
    engine: Literal["laurel", "sb3"] = "laurel"
    """Training engine: Laurel's own algorithms, or Stable-Baselines3 (the extra sb3), whose algorithm `sb3` names."""
    checkpoint_steps: Count | None = None
    """Environment steps between checkpoints; null: 50,000, and in language_model, whose rounds are long, one round."""
    workers: Count | None = None
    """Training processes, each with several agents in lockstep; null: one per usable CPU, also in a container, or one
    on a GPU. Results do not depend on it."""
    device: Device = "cpu"
    """Device on which networks are trained; auto: a GPU if there is one. With PPO and an MLP, CartPole and MiniGrid's
    DoorKey and Empty then run there, too, unless env.backend names another backend. Small networks are faster on the
    CPU."""
    curriculum: CurriculumParams | None = Field(default=None, exclude_if=lambda curriculum: curriculum is None)
    """How tasks are chosen in laurel/Tasks-v0; null: all of them in turn."""
    ppo: PPOParams = PPOParams()
    dqn: DQNParams = DQNParams()
    reinforce: ReinforceParams = ReinforceParams()
    a2c: A2CParams = A2CParams()
    tabular: TabularParams = TabularParams()
    bandit: BanditParams = BanditParams()
    sb3: SB3Params = SB3Params()

    @model_validator(mode="after")
    def _curriculum_is_ours(self) -> AgentParams:
        if self.curriculum is not None and self.engine == "sb3":
            raise ValueError("has a curriculum, which only Laurel's own algorithms follow: set engine to laurel.")
        return self

    @classmethod
    def section_class(cls, kind: str) -> type[Section]:
        """As in `PluggedSection`; the section also names the algorithm, which is looked up by that name."""
        declared = super().section_class(kind)
        if (named := getattr(declared, "algorithm", None)) != kind:
            raise ParamsError(
                f'agent.algorithm: the algorithm "{kind}" of another package: its class {declared.__name__} declares '
                f"algorithm = {named!r}, which must be the name of its entry point, {kind!r}. Fix that package."
            )
        return declared

    @property
    def section(self) -> str:
        """The name of the section with the settings that are used."""
        return "sb3" if self.engine == "sb3" else self.algorithm

    @property
    def settings(self) -> LearnerParams:
        """The settings that are used."""
        section: LearnerParams = self.section_of(self.section)
        return section

    @property
    def gamma(self) -> float:
        """The discount that agents learn with."""
        return self.settings.learned_discount

    @property
    def trainer(self) -> str:
        """Name of the training algorithm, e.g. ppo, q_learning, ucb (bandit) or SAC (sb3)."""
        return self.settings.trainer_name
