"""Notes on the training of agents, for readers of the report: what trained them, and what they met."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from laurel.agents.figures import METRICS
from laurel.console import tell
from laurel.data.json_file import read_json
from laurel.data.usage import ASKER, USAGE, with_stopped
from laurel.envs.base import EnvAdapter
from laurel.evaluation.formats import counted
from laurel.feedback.annotator_kind import kind_of
from laurel.params import EnvParams
from laurel.params.annotation import AnnotateParams
from laurel.params.resolved_arms import Arm, served_actors
from laurel.rewards.method import RewardContext
from laurel.rewards.online_artefact import LABELS
from laurel.rewards.stored import OWN
from laurel.training.checkpoint import STATE, read_run
from laurel.training.checks import notes_on_actions, notes_on_judges, notes_on_late_labels, notes_on_unpaid
from laurel.training.curve import CURVE
from laurel.training.engines import engine_of
from laurel.training.lockstep import on_device
from laurel.training.task import Agent

FIGURES = [name for name in METRICS if name != "epsilon"]
"""Columns of a learning curve that are null until an algorithm has learned."""
RESETS = 0.1
"""Minimum share of environment steps that begin a new episode for a note about it."""

PAID_BY_REWARD = (
    "it is the same for all they met, or never above its threshold (shaping.quantile); `laurel show data/reward` "
    "shows it."
)
PAID_BY_ANSWERS = (
    "their online judge gave no answers in time, or the same one about all they met; labels.parquet in each agent's "
    "folder (reward/NAME) has its answers."
)
"""Usual causes of a reward that never pays: one that was made before training, and one that was learned in training."""

STILL = 1e-5
"""Value of `approx_kl` below which a policy counts as unchanged; a first update has a few thousandths."""


def notes_on_arms(arms: Sequence[Arm], context: RewardContext, adapter: EnvAdapter) -> list[str]:
    """Return notes on what trains agents other than Laurel's algorithms, on what is simulated, and on agents that can
    hardly learn; they are the same on any machine.
    """
    return [
        *_notes_on_engines(arms),
        *_notes_on_interest(arms, context.annotate),
        *notes_on_judges(arms, context),
        *_notes_on_servers(arms),
        *notes_on_actions(arms, adapter),
        *notes_on_unpaid(arms),
        *notes_on_late_labels(arms, context),
    ]


def _notes_on_engines(arms: Sequence[Arm]) -> list[str]:
    """Return notes on algorithms of another library, and on the consequences of interrupting them."""
    engines = {arm.name: engine_of(arm.agent) for arm in arms}
    trained: dict[str, list[str]] = {}
    for name, engine in engines.items():
        if engine.credit is not None:
            trained.setdefault(engine.credit, []).append(name)
    notes = []
    for credit, names in trained.items():
        subject = "The agents" if len(names) == len(arms) else f"Agents of {', '.join(names)}"
        notes.append(f"{subject} were trained by {credit}, not by one of Laurel's own algorithms.")
    if not all(engine.resumes_exactly for engine in engines.values()):
        notes.append(
            "Random numbers of a GPU, or of state-dependent exploration, are not in checkpoints: agents whose "
            "training was interrupted and resumed may differ from uninterrupted ones."
        )
    return notes


def _notes_on_interest(arms: Sequence[Arm], annotate: AnnotateParams) -> list[str]:
    """Return notes on arms whose interest in tasks comes from a simulated judge."""
    judges = {arm.name: arm.agent.curriculum.interest for arm in arms if arm.agent.curriculum is not None}
    simulated = [
        name for name, judge in judges.items() if judge is not None and kind_of(annotate.of_judge(judge)).simulated
    ]
    return [f"In {', '.join(simulated)} a simulated judge said which tasks are interesting."] if simulated else []


def notes_on_gpu(env: EnvParams, arms: Sequence[Arm], adapter: EnvAdapter) -> list[str]:
    """Return notes on what ran on the GPU: the networks only, or also the environments."""
    notes = []
    for agent in (arm.agent for arm in arms):
        if not engine_of(agent).on_gpu:
            continue
        if on_device(env, adapter, agent.settings, agent.device):
            notes.append(
                f"The agents were trained entirely on the GPU: {adapter.env_id} ran there as tensors. Its random "
                "numbers differ from those on the CPU, so agents of the same seed differ."
            )
        else:
            notes.append(
                f"The agents' networks were trained on the GPU, but {adapter.env_id} ran on the CPU: environments run "
                "on the GPU only for PPO with an MLP, episodic returns and no hints, in CartPole and MiniGrid's "
                'DoorKey and Empty, with env.backend "auto" and no env.kwargs.'
            )
    return list(dict.fromkeys(notes))


def _notes_on_servers(arms: Sequence[Arm]) -> list[str]:
    """Return notes on arms whose proposals were sampled by a server, which are not reproducible."""
    served = served_actors(arms)
    if not served:
        return []
    return [
        f"Proposals of {', '.join(served)} were sampled by a server (agent.language_model.serve), whose batches "
        f"differ from run to run: if these agents are trained again, or interrupted and resumed, they and their "
        f"results differ."
    ]


@dataclass(frozen=True)
class _Trained:
    """Facts about an agent's training, from its files."""

    arm: Arm
    seed: int
    state: Mapping[str, Any]
    learned: bool
    """Whether any update has the figures of an algorithm."""
    episodes: int
    moved: float | None
    """The largest `approx_kl` of an update; None if the algorithm does not report it."""
    paid: float | None
    """The largest share of an update's steps that the learned reward paid anything; None without such a reward."""
    annotated: bool
    """Whether a reward was learned from an online judge's answers during training."""

    @classmethod
    def read(cls, arm: Arm, seed: int, place: Path) -> _Trained:
        """Read an agent's files."""
        curve = pq.read_table(place / CURVE, columns=[*FIGURES, "episodes", "share_paid"])
        learned = any(column.null_count < len(column) for column in curve.select(FIGURES).columns)
        episodes, moved = pc.sum(curve["episodes"]).as_py() or 0, pc.max(curve["approx_kl"]).as_py()
        paid, annotated = pc.max(curve["share_paid"]).as_py(), any((place / OWN).glob(f"*/{LABELS}"))
        return cls(arm, seed, read_json(place / STATE), learned, episodes, moved, paid, annotated)


def notes_on_training(places: Sequence[Agent]) -> list[str]:
    """Return notes on what agents met and did during training."""
    trained = [_Trained.read(*place) for place in places]
    return [
        *_notes_on_unseen(trained),
        *_notes_on_pay(trained),
        *_notes_on_idleness(trained),
        *_notes_on_stillness(trained),
        *_notes_on_steps(trained),
        *_notes_on_resets(trained),
    ]


def _notes_on_unseen(trained: Sequence[_Trained]) -> list[str]:
    """Return notes on arms that met captions missing from the table, which were scored when first met, or outcomes
    without an answer, which the reward does not pay.
    """
    notes = []
    for arm in dict.fromkeys(agent.arm.name for agent in trained):
        states = [agent.state for agent in trained if agent.arm.name == arm]
        unseen, unpaid = max(state["unseen"] for state in states), max(state.get("unpaid", 0) for state in states)
        if unpaid:
            notes.append(
                f"Agents of {arm} met up to {unpaid} outcome{'s' * (unpaid > 1)} without an answer, since collection "
                "had not met them or the answer could not be read; the reward paid nothing for them."
            )
        if unseen:
            notes.append(
                f"Agents of {arm} met up to {unseen} caption{'s' * (unseen > 1)} that collection had not met; these "
                "were scored during training."
            )
    return notes


def _notes_on_pay(trained: Sequence[_Trained]) -> list[str]:
    """Return notes on agents to which their arm's reward never paid anything."""
    unpaid: dict[str, list[str]] = {}
    for arm in dict.fromkeys(agent.arm.name for agent in trained):
        agents = [agent for agent in trained if agent.arm.name == arm]
        never = [agent for agent in agents if agent.paid == 0]
        names = [arm] if len(never) == len(agents) else [f"{arm} seed {agent.seed}" for agent in never]
        for name, agent in zip(names, never, strict=False):
            unpaid.setdefault(PAID_BY_ANSWERS if agent.annotated else PAID_BY_REWARD, []).append(name)
    return [
        f"The arm's reward paid nothing in any training step of {', '.join(names)}, so these agents learned as if "
        f"there were none. The usual cause is that {cause}"
        for cause, names in unpaid.items()
    ]


def _notes_on_idleness(trained: Sequence[_Trained]) -> list[str]:
    """Return notes on agents that never learned, e.g. because no episode ended, or a replay memory never held
    enough.
    """
    idle: dict[str, list[str]] = {}
    for agent in trained:
        if not agent.learned:
            idle.setdefault(agent.arm.agent.section, []).append(f"{agent.arm.name} seed {agent.seed}")
    return [
        f"{', '.join(names)} never had enough to learn from: their weights are the initial ones. Raise "
        f"agent.steps, or lower n_envs or learning_starts of agent.{section}."
        for section, names in idle.items()
    ]


def _notes_on_stillness(trained: Sequence[_Trained]) -> list[str]:
    """Return a note on agents of PPO that ended with the policy they began with, although they learned."""
    unmoved = {
        f"{agent.arm.name} seed {agent.seed}": agent.moved
        for agent in trained
        if agent.arm.agent.section == "ppo" and agent.moved is not None and agent.moved < STILL
    }
    if not unmoved:
        return []
    return [
        f"The policies of {', '.join(unmoved)} did not change while they were trained (approx_kl is "
        f"{max(unmoved.values()):.1g} at most). The usual cause is rewards that are too large: the gradient is "
        "clipped, and the critic's part leaves almost nothing of the policy's. Scale the environment's reward by "
        "shaping.extrinsic, e.g. to a few units a step, and the learned one by shaping.intrinsic."
    ]


def _notes_on_steps(trained: Sequence[_Trained]) -> list[str]:
    """Return notes on runs that took many more steps than requested, to finish their last rollout."""
    taken: dict[tuple[str, int, int], list[str]] = {}
    for record in trained:
        agent, steps = record.arm.agent, record.state["env_steps"]
        if engine_of(agent).whole_rollouts and steps > 1.1 * agent.steps:
            taken.setdefault((agent.sb3.algorithm, agent.steps, steps), []).append(record.arm.name)
    return [
        f"Agents of {', '.join(dict.fromkeys(names))} took {steps:,} environment steps each, not {wanted:,}: "
        f"{algorithm} learns from complete rollouts. For shorter ones, lower agent.sb3.kwargs.n_steps or "
        "agent.sb3.n_envs."
        for (algorithm, wanted, steps), names in taken.items()
    ]


def _notes_on_resets(trained: Sequence[_Trained]) -> list[str]:
    """Return a note on arms in which a share of RESETS or more of the steps began a new episode."""
    shares: dict[str, float] = {}
    for agent in trained:
        if engine_of(agent.arm.agent).resets_count:
            share = agent.episodes / agent.state["env_steps"]
            shares[agent.arm.name] = max(shares.get(agent.arm.name, 0.0), share)
    often = {name: share for name, share in shares.items() if share >= RESETS}
    if not often:
        return []
    return [
        f"Steps that begin a new episode, without an action, count as environment steps: up to "
        f"{max(often.values()):.0%} of those of {', '.join(often)}. With engine: sb3 they do not count, so compare "
        f"numbers of steps with care."
    ]


def notes_on_questions(places: Sequence[Agent]) -> list[str]:
    """Return notes on language-model usage in training, with warnings about unreadable answers.

    Agents of one process share the answers to hints, and a note.
    """
    accounts: dict[tuple[str, str], dict[str, Any]] = {}
    agents: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for arm, seed, place in places:
        run = read_run(place)
        for purpose, its_account in run.get("accounts", {}).items():
            account = with_stopped(its_account, run.get(USAGE, {}))
            asked = account.get(ASKER, f"{arm.name} {seed}"), purpose
            accounts[asked] = max(accounts.get(asked, account), account, key=lambda usage: usage["states"])
            agents.setdefault(asked, []).append((arm.name, seed))
    notes, unread = [], dict[str, str]()
    for asked, account in accounts.items():
        topic = account.get("about", "states")
        fallback = account.get("instead", "all choices counted as equally likely")
        trained = ", ".join(f"{arm} seed {seed}" for arm, seed in agents[asked])
        calls, cached = counted(account.get("calls", 0), "call"), counted(account.get("cached", 0), "answer")
        notes.append(
            f"The process that trained {trained} asked {account['model']} for {asked[1]} about "
            f"{_number(account['states'], f'distinct {topic}')}: {calls}, {cached} from the store. "
            f"{_number(account['unread'], topic)} had no answer that could be read: {fallback} there."
        )
        if account["unread"]:
            unread.setdefault(f"{agents[asked][0][0]} {asked[1]}", notes[-1])  # once, not for every seed
    for note in unread.values():
        tell(f"train-agents: {note}")
    return notes


def _number(n: int, things: str) -> str:
    """Write a number of things, such as states or pairs of tasks; one of them without the first plural's s."""
    singular = re.sub(r"(?<=[a-z])s\b", "", things, count=1)
    return f"{n:,} {singular if n == 1 else things}"
