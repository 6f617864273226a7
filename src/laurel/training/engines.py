"""The engines that train agents (`agent.engine`): Laurel's own algorithms, or those of another library with training
loops of their own. torch and the library are imported only when agents are made or trained.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from laurel.agents.algorithms import algorithm_of
from laurel.agents.sb3.catalog import ALGORITHMS, CONTRIB, SB3, check_algorithm
from laurel.envs.base import EnvAdapter
from laurel.params import EnvParams
from laurel.params.algorithms import AlgorithmParams
from laurel.params.resolved_arms import Arm
from laurel.params.sb3 import SB3Params
from laurel.params.training import AgentParams
from laurel.plugins import nothing_returned
from laurel.training.task import Assignment, total_steps

if TYPE_CHECKING:
    from laurel.agents.learner import PolicyNetwork


class Engine(ABC):
    """How agents with the same section `agent` are trained."""

    in_lockstep: ClassVar[bool]
    """Whether agents that are trained by one process share its batches, so that several take less time."""
    keeps_rewards: ClassVar[bool]
    """Whether checkpoints hold rewards that are learned while agents are trained."""
    whole_rollouts: ClassVar[bool]
    """Whether training may take more than the reported steps, until its last rollout ends."""
    resets_count: ClassVar[bool]
    """Whether steps that only begin a new episode count as environment steps."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Further packages that results depend on."""

    def __init__(self, agent: AgentParams) -> None:
        self.agent = agent

    @property
    @abstractmethod
    def steps(self) -> int:
        """The environment steps that training an agent reports."""

    @property
    def credit(self) -> str | None:
        """The algorithm and the package that has it, with its version, if Laurel only runs it."""
        return None

    @property
    def resumes_exactly(self) -> bool:
        """Whether agents whose training was interrupted and resumed equal uninterrupted ones."""
        return True

    @property
    def on_gpu(self) -> bool:
        """Whether agents are trained in lockstep on a GPU; imports torch."""
        from laurel.device import torch_device

        return self.in_lockstep and torch_device(self.agent.device, "agent.device").type != "cpu"

    @abstractmethod
    def check(self, adapter: EnvAdapter) -> None:
        """Refuse an environment by its spaces.

        Raises:
            ParamsError: the settings do not fit the environment, or a package is not installed.
            EnvError: the algorithm does not fit the environment's observations or actions.
        """

    def check_made(self, run_seed: int, env: EnvParams, adapter: EnvAdapter) -> None:
        """Refuse settings that only show to be wrong when the algorithm is made; otherwise as `check`."""
        self.check(adapter)

    @abstractmethod
    def untrained(self, run_seed: int, env: EnvParams, adapter: EnvAdapter, seed: int) -> PolicyNetwork:
        """Return the policy that training with a seed begins with, the same for all arms; imports torch.

        Raises:
            ParamsError, EnvError: as `check`.
        """

    @abstractmethod
    def train(self, assigned: Sequence[Assignment], adapter: EnvAdapter, advance: Callable[[int], None]) -> None:
        """Train agents until their last step, or resume from their checkpoints.

        Args:
            assigned: agents with these settings.
            advance: called with the number of environment steps done, steps of checkpoints included.

        Raises:
            DataError: a checkpoint is damaged or of another agent.
            TrainingError: training diverged.
        """


class LaurelEngine(Engine):
    """Laurel's algorithms and those of plugins, in lockstep."""

    in_lockstep = True
    keeps_rewards = True
    whole_rollouts = False
    resets_count = True

    @property
    def settings(self) -> AlgorithmParams:
        assert isinstance(self.agent.settings, AlgorithmParams)
        return self.agent.settings

    @property
    def steps(self) -> int:
        return total_steps(self.settings, self.agent.steps)

    def check(self, adapter: EnvAdapter) -> None:
        algorithm = algorithm_of(self.settings)
        said: object = algorithm.check(adapter)  # type: ignore[func-returns-value]
        nothing_returned("algorithm", algorithm, "check", said)

    def untrained(self, run_seed: int, env: EnvParams, adapter: EnvAdapter, seed: int) -> PolicyNetwork:
        from laurel.agents.algorithms import initial_policy

        return initial_policy(adapter, self.settings, run_seed, seed)

    def train(self, assigned: Sequence[Assignment], adapter: EnvAdapter, advance: Callable[[int], None]) -> None:
        from threadpoolctl import threadpool_limits

        from laurel.training.loop import train_together

        with threadpool_limits(1, user_api="blas"):
            train_together(assigned, adapter, advance)


class SB3Engine(Engine):
    """Stable-Baselines3's algorithms, one agent after another."""

    in_lockstep = False
    keeps_rewards = False
    whole_rollouts = True
    resets_count = False
    packages = (SB3.replace("_", "-"), CONTRIB.replace("_", "-"))

    @property
    def settings(self) -> SB3Params:
        return self.agent.sb3

    @property
    def steps(self) -> int:
        return self.agent.steps

    @property
    def credit(self) -> str:
        from importlib.metadata import version

        package, _ = ALGORITHMS[self.settings.algorithm]
        return f"{self.settings.algorithm} of {package} {version(package)}"

    @property
    def resumes_exactly(self) -> bool:
        return self.agent.device == "cpu" and not self.settings.kwargs.get("use_sde")

    def check(self, adapter: EnvAdapter) -> None:
        check_algorithm(self.settings, adapter.action_space)

    def check_made(self, run_seed: int, env: EnvParams, adapter: EnvAdapter) -> None:
        self.untrained(run_seed, env, adapter, self.agent.seeds[0])

    def untrained(self, run_seed: int, env: EnvParams, adapter: EnvAdapter, seed: int) -> PolicyNetwork:
        from laurel.agents.sb3.model import initial_sb3_policy

        agent = self.agent
        return initial_sb3_policy(
            env, adapter, self.settings, run_seed=run_seed, seed=seed, steps=agent.steps, device=agent.device
        )

    def train(self, assigned: Sequence[Assignment], adapter: EnvAdapter, advance: Callable[[int], None]) -> None:
        from laurel.training.sb3 import train_sb3

        for assignment in assigned:
            train_sb3(assignment.task, adapter, assignment.reward, assignment.directory, advance)


ENGINES: Mapping[str, type[Engine]] = {"laurel": LaurelEngine, "sb3": SB3Engine}
"""Engines by their names in `agent.engine`."""


def engine_of(agent: AgentParams) -> Engine:
    """Return what trains agents with this section."""
    return ENGINES[agent.engine](agent)


def steps_of(arm: Arm) -> int:
    """Return the environment steps that training an agent of an arm reports."""
    return engine_of(arm.agent).steps
