"""Rounds: a language model proposes actions, a critic scores them, and TRL's losses tune it on better and worse ones.

The advantage of a proposal a in a state s is r + γ V(s') - V(s) (`laurel.agents.language_model.critic`). The first
rounds take random actions: the model imitates how they are written, and the critic is fitted to their returns.
After "LactChain" (a language model proposes sequences of moves, and learns by preferences from their advantages).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from laurel.agents.actor import View
from laurel.agents.language_model import pairs
from laurel.agents.language_model.calibration import KEPT, Calibration, calibration
from laurel.agents.language_model.chain import Proposal, Reader, Turn
from laurel.agents.language_model.critic import Critic, EncoderCritic, TableCritic
from laurel.agents.language_model.pairs import BestAnswers, Memory, RecentMemory, RoundMemory, Scored
from laurel.agents.language_model.policy import LanguageModelPolicy, actions_of
from laurel.agents.language_model.shards import SampledShard
from laurel.agents.learner import Learner, Rollout
from laurel.agents.ppo import gae
from laurel.arrays import Array, DoubleArray, FloatArray
from laurel.envs.base import EnvAdapter
from laurel.envs.builtin.model import from_table
from laurel.envs.joined import Shards
from laurel.envs.vector import VectorEnv
from laurel.errors import DataError, EnvError, TrainingError
from laurel.llm.encoder import PACKAGED
from laurel.llm.served_sampling import ServedModel
from laurel.llm.trl_tuning import PAIRED, Group, Pair, Tuning, step_of
from laurel.llm.tuning_process import tune
from laurel.params.language_actor import BETAS, LanguageActorParams

IDLE = 3
"""Rounds without training data after which training stops with an error if the model is no better than random."""
FITS = 4
"""Times that the critic is fitted to a round; each fit values cut-off episodes by the fit before it (at first 0)."""


@dataclass
class Proposals(Rollout):
    """A rollout with the model's texts."""

    written: list[list[Proposal | None]] = field(default_factory=list, kw_only=True)
    """T lists of N; None where an environment was reset."""

    def columns(self, rows: slice) -> Proposals:
        """Return the part of some environments: its arrays are views of these, with nothing written yet."""
        names = ("observation", "action", "extrinsic", "reward", "terminated", "truncated", "valid")
        parts = {name: getattr(self, name)[:, rows] for name in names}
        return replace(self, **parts, info={name: values[:, rows] for name, values in self.info.items()}, written=[])


class LanguageModelLearner(Learner):
    """Tunes the model once per rollout; between rollouts it keeps only the critic, the memory and the round number."""

    name = "language_model"
    policy: LanguageModelPolicy
    params: LanguageActorParams
    adapter: EnvAdapter

    def __init__(self, policy: LanguageModelPolicy, params: LanguageActorParams, rng: np.random.Generator) -> None:
        super().__init__(policy, params, rng)
        self.round = 0
        self.critic: Critic = TableCritic()
        if params.critic == "encoder":
            self.critic = EncoderCritic(params.encoder or PACKAGED, policy.device)
        self.memory: Memory = RoundMemory() if params.memory_rounds == 1 else RecentMemory(params.memory_rounds)
        self.best = BestAnswers()
        self.server = ServedModel(params) if params.serve else None
        self._left = 1.0
        self._idle = 0
        self._random = (0.0, 0.0)
        """Mean return of the last random round, and the variance of that mean."""
        self.calibration: Calibration | None = None
        """Measures the critic after the random rounds, if the true values are known."""
        self.sampled: Sequence[SampledShard] = ()
        """The shards of the next rollout if they were sampled elsewhere; empty: `collect` samples them."""

    def schedule(self, done: float) -> None:
        self._left = 1 - done if self.params.anneal else 1.0

    def rollout(self, envs: VectorEnv) -> Proposals:
        self.adapter = envs.adapter
        return Proposals(**Rollout.shapes(self.params.n_steps, envs, self.policy))

    def collect(self, envs: VectorEnv, observation: Array, rollout: Proposals) -> Array:
        sampled, self.sampled = self.sampled, ()
        parts = []
        for number, (part, vector, rng) in enumerate(self._shards(envs, observation, rollout)):
            if sampled:
                self._take(vector, part, sampled[number])
            else:
                self._sample(vector, part, rng)
            parts.append(part.written)
        rollout.written = [
            [proposal for written in of_step for proposal in written] for of_step in zip(*parts, strict=True)
        ]
        rollout.reward[:] = rollout.extrinsic
        return rollout.observation[-1].copy()

    def sample(self, envs: VectorEnv, observation: Array, rollout: Proposals, shard: int) -> SampledShard:
        """Sample a shard of the next rollout as `collect` would, and nothing else."""
        part, vector, rng = self._shards(envs, observation, rollout)[shard]
        self._sample(vector, part, rng)
        return SampledShard(part.action, part.written, vector.backend)

    def _shards(
        self, envs: VectorEnv, observation: Array, rollout: Proposals
    ) -> list[tuple[Proposals, VectorEnv, np.random.Generator]]:
        """Return each shard's part of a rollout that is to be filled, its environments and its random generator.

        What a shard draws depends on its number and on the state of the learner's own generator.
        """
        self.adapter = envs.adapter
        rollout.observation[0] = observation
        if not isinstance(envs, Shards):
            return [(rollout.columns(slice(None)), envs, self.rng)]
        seeds = self.rng.integers(2**63, size=len(envs.members)).tolist()
        return [
            (rollout.columns(rows), vector, np.random.default_rng(seed))
            for (rows, vector), seed in zip(envs.rows(), seeds, strict=True)
        ]

    def _sample(self, envs: VectorEnv, part: Proposals, rng: np.random.Generator) -> None:
        """Fill a shard of a rollout by proposals."""
        if self.server:
            self.server.take(self.policy.local)
        for t in range(self.params.n_steps):
            acting = np.flatnonzero(~envs.ended)  # after the end of an episode, the next step begins another
            states = View(envs.adapter, part.observation[t][acting]).text
            proposals = self._propose(states, rng)
            action = np.zeros(envs.n_envs, dtype=np.int64)
            action[acting] = actions_of(proposals, self.policy.lists, rng)
            written: list[Proposal | None] = [None] * envs.n_envs
            for place, proposal in zip(acting.tolist(), proposals, strict=True):
                written[place] = proposal
            part.written.append(written)
            part.record(t, action, envs.step(action))

    def _take(self, envs: VectorEnv, part: Proposals, sampled: SampledShard) -> None:
        """Fill a shard of a rollout by what was sampled elsewhere; its environments take the same actions again.

        Raises:
            DataError: the proposals were sampled in other environments.
        """
        if (sampled.backend, *sampled.action.shape) != (envs.backend, *part.action.shape):
            raise DataError(
                f"Proposals were sampled in {sampled.action.shape[1]} environments of {sampled.backend}, but here are "
                f"{envs.n_envs} of {envs.backend}. Use the same packages in all tasks."
            )
        for t, (action, written) in enumerate(zip(sampled.action, sampled.written, strict=True)):
            if [proposal is None for proposal in written] != envs.ended.tolist():
                raise DataError("Episodes end at other steps than when proposals were sampled. Use the same packages.")
            part.record(t, action.astype(np.int64), envs.step(action.astype(np.int64)))
        part.written.extend(sampled.written)

    @property
    def _imitating(self) -> bool:
        return self.round < self.params.imitation_rounds

    def _propose(self, states: Sequence[str], rng: np.random.Generator) -> list[Proposal]:
        policy, reader = self.policy, Reader(self.policy.local, self.adapter, self.server)
        if not self._imitating:
            return policy.asks.propose(reader, states, rng, policy.temperature)
        moves = [policy.lists.moves(number) for number in policy.lists.draw(len(states), rng).tolist()]
        return policy.asks.taught(reader, states, moves, rng)

    def learn(self, rollout: Proposals) -> Mapping[str, float]:
        """Score the proposals, fit the critic in rounds that do so, and tune the model.

        Raises:
            TrainingError: too many answers cannot be read, or too few proposals can be compared; or the loss is NaN or
                infinite.
        """
        rows = [
            (t, n, proposal)
            for t, of_step in enumerate(rollout.written)
            for n, proposal in enumerate(of_step)
            if proposal is not None and rollout.valid[t, n]
        ]
        if not rows:
            return {}
        imitating = self._imitating
        self.round += 1
        value, returns, error = self._valued(rollout, fit=imitating or self.params.refresh_critic)
        unread = sum(proposal.moves is None for _, _, proposal in rows)
        # the answers of a random round are not the model's
        figures = self._calibrated(rollout) if imitating else self._written(rows, unread)
        if unread > self.params.max_unread * len(rows):
            raise TrainingError(
                f"Round {self.round}: {unread:,} of {len(rows):,} answers cannot be read, more than "
                f"agent.language_model.max_unread ({self.params.max_unread:g}) allows. Set constrained to true, choose "
                "another form of answer or prompt, or raise imitation_rounds."
            )
        seed = int(self.rng.integers(2**31))
        scores = self._scores(rollout, value, returns)
        spread = float(np.std([scores[t, n] for t, n, _ in rows]))
        margin = self.params.margin * spread
        lowest = min(scores[t, n] for t, n, _ in rows)
        scored = [
            Scored(proposal.turns, float(scores[t, n]) if proposal.moves is not None else pairs.UNREAD)
            for t, n, proposal in rows
        ]
        if self.params.keep_best:
            self.best.add(scored)
        valid_returns = returns[rollout.valid].astype(np.float64)
        mean = float(valid_returns.mean()), float(valid_returns.var() / len(valid_returns))
        if imitating:
            self._random = mean
            turns = self._imitated(scored)
            figures["examples"] = len(turns)
            figures["policy"] = tune(self.policy.local, "imitate", turns, self._tuning(), seed, self.params.processes)
        else:
            compared = pairs.below_all(self.memory.add(scored), lowest, margin)
            self._tune(compared, margin, figures, seed)
            self._idle = 0 if figures["examples"] else self._idle + 1
            if self._idle >= IDLE and not self._better_than_random(*mean):
                raise self._stalled()
        return {"value": error, **figures}

    @staticmethod
    def _written(rows: Sequence[tuple[int, int, Proposal]], unread: int) -> dict[str, float]:
        """Return figures of the answers that the model wrote."""
        proposals = [proposal for _, _, proposal in rows]
        return {
            "parse_rate": 1 - unread / len(proposals),
            "tokens": float(np.mean([proposal.tokens for proposal in proposals])),
            "entropy": -float(np.mean([proposal.log_prob for proposal in proposals])),
        }

    def _imitated(self, scored: Sequence[Scored]) -> list[tuple[str, str]]:
        """Choose the prompts and answers of a random round to imitate: the share with the highest scores."""
        params = self.params
        if params.keep_best:
            rows = [(prompt, answer) for prompt, (answer, _) in self.best.known.items()]
            return [rows[i] for i in self.rng.permutation(len(rows))[: params.imitation_examples].tolist()]
        scores = np.array([proposal.score for proposal in scored])
        order = self.rng.permutation(len(scores))
        if params.imitation_share < 1:
            order = order[np.argsort(-scores[order], kind="stable")]
        indices = order[: min(params.imitation_examples, math.ceil(params.imitation_share * len(scores)))]
        return [tuple(turn) for i in indices.tolist() for turn in scored[i].turns]

    def _valued(self, rollout: Proposals, *, fit: bool) -> tuple[FloatArray, FloatArray, float]:
        """Return values (T + 1, N), returns (T, N), and the critic's mean squared error on them."""
        shape = rollout.observation.shape[:2]
        texts = np.array(_texts(self.adapter, rollout.observation), dtype=object).reshape(shape)
        flat = texts.reshape(-1).tolist()
        value = self.critic.values(flat).reshape(shape)
        returns = self._returns(rollout, value)
        for _ in range(FITS if fit else 0):
            self.critic.fit(texts[:-1][rollout.valid].tolist(), returns[rollout.valid])
            value = self.critic.values(flat).reshape(shape)
            returns = self._returns(rollout, value)
        return value, returns, float(np.square(returns - value[:-1])[rollout.valid].mean())

    def _calibrated(self, rollout: Proposals) -> dict[str, float]:
        """Compare the critic with dynamic programming.

        Only if the environment has a table of transitions, the only reward was the environment's, and the critic is not
        refitted after the random rounds; otherwise the result is empty.
        """
        table, from_env = self.adapter.table, (rollout.reward == rollout.extrinsic) | ~rollout.valid
        if table is None or self.params.refresh_critic or not from_env.all():
            return {}
        try:
            model = from_table(table.outcomes, table.start, self.adapter.env_id)
        except EnvError:  # the table is not enough, e.g. if an episode may end or continue in the same state
            return {}
        quality = calibration(self.critic, self.adapter, model, self.policy.lists, self.params.gamma)
        self.calibration = quality
        return {"critic_error": quality.error} | ({"critic_rank": quality.rank} if math.isfinite(quality.rank) else {})

    def _returns(self, rollout: Proposals, value: FloatArray) -> FloatArray:
        reward = np.where(rollout.valid, rollout.reward, 0).astype(np.float32)
        ends = rollout.terminated, rollout.truncated
        return gae(reward, value, *ends, gamma=self.params.gamma, lam=self.params.gae_lambda) + value[:-1]

    def _scores(self, rollout: Proposals, value: FloatArray, returns: FloatArray) -> FloatArray:
        """Return the score of each proposal (T, N)."""
        if self.params.score == "return":
            return returns
        following = self.params.gamma * value[1:] * ~rollout.terminated
        return (rollout.reward + following - value[:-1]).astype(np.float32)

    def _tune(self, proposals: Sequence[Scored], margin: float, figures: dict[str, float], seed: int) -> None:
        """Tune on proposals whose scores differ by more than the margin; without any there is no loss."""
        params, tuning = self.params, self._tuning()
        groups, skipped = pairs.grouped(proposals, params.proposals, self.rng)
        if skipped.alone > params.max_alone * skipped.of:
            # a strategy in the model's own words makes the prompt that follows it one of a kind
            menu = " set strategy to menu," if params.strategy == "free" else ""
            raise TrainingError(
                f"Round {self.round}: {skipped.alone:,} of {skipped.of:,} answers are to prompts that occurred once, "
                "so that there is nothing to compare them with; agent.language_model.max_alone allows a share of "
                f"{params.max_alone:g}. Raise n_envs,{menu} or take an environment with fewer states."
            )
        if params.keep_best:
            groups = self.best.join(groups)
        if params.loss in PAIRED:
            rows: Sequence[Pair | Group] = pairs.pairs_of(groups, margin, params.pairing, skipped)
        else:
            rows = pairs.unequal(groups, params.proposals, margin, skipped)
        figures["examples"] = len(rows)
        if rows and params.loss not in PAIRED:
            figures["examples"] -= len(rows) % step_of(rows, params.loss, tuning, params.processes)
        if rows:
            figures["policy"] = tune(self.policy.local, params.loss, rows, tuning, seed, params.processes)
        figures |= {"alone": skipped.alone, "alike": skipped.alike}

    def _better_than_random(self, mean: float, variance: float) -> bool:
        """Whether a round's mean return is shown to be above that of the random rounds: two standard errors."""
        return mean - self._random[0] > 2 * math.sqrt(variance + self._random[1])

    def _stalled(self) -> TrainingError:
        margin = self.params.margin
        threshold, or_less = "", ""
        if margin:
            threshold = f" by more than agent.language_model.margin ({margin:g} standard deviations of scores)"
            or_less = "margin or "
        return TrainingError(
            f"Round {self.round}: in the last {self._idle} rounds no proposal was better than another for the same "
            f"state{threshold}, and the model does no better than random moves did. Set imitation_share to 1, raise "
            f"temperature, n_steps or n_envs, or lower {or_less}proposals."
        )

    def _tuning(self) -> Tuning:
        params = self.params
        return Tuning(
            learning_rate=params.learning_rate * self._left,
            batch_size=params.batch_size,
            epochs=params.n_epochs,
            beta=BETAS[params.loss] if params.beta is None else params.beta,
            gamma=params.simpo_gamma,
            imitation=params.imitation,
            max_grad_norm=params.max_grad_norm,
            temperature=params.temperature,
        )

    def state(self) -> dict[str, Tensor]:
        memory = [
            [[list(map(list, proposal.turns)), proposal.score] for proposal in proposals]
            for proposals in self.memory.state()
        ]
        text = json.dumps({"rounds": memory, "best": self.best.known}).encode()
        calibration = self.calibration._asdict() if self.calibration else {}
        return {
            "round": torch.tensor(self.round),
            "idle": torch.tensor([self._idle, *self._random], dtype=torch.float64),
            "memory": torch.frombuffer(bytearray(text), dtype=torch.uint8),
            **{f"critic.{name}": torch.from_numpy(array.copy()) for name, array in self.critic.state().items()},
            **{f"{KEPT}{name}": torch.from_numpy(array) for name, array in calibration.items()},
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.round = int(state["round"])
        idle, *random = state["idle"].tolist()
        self._idle, self._random = int(idle), (random[0], random[1])
        content = json.loads(state["memory"].numpy().tobytes())
        self.memory.restore(
            [
                [Scored(tuple(Turn(*turn) for turn in turns), score) for turns, score in proposals]
                for proposals in content["rounds"]
            ]
        )
        self.best.known = {prompt: (answer, score) for prompt, (answer, score) in content["best"].items()}
        self.critic.restore(_with_prefix(state, "critic."))
        if calibration := _with_prefix(state, KEPT):
            self.calibration = Calibration(**calibration)


def _with_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, DoubleArray]:
    return {name.removeprefix(prefix): value.numpy() for name, value in state.items() if name.startswith(prefix)}


def _texts(adapter: EnvAdapter, observation: Array) -> list[str]:
    """Return observations (..., D) in words, each distinct one described once."""
    rows, places = np.unique(observation.reshape(-1, observation.shape[-1]), axis=0, return_inverse=True)
    texts = View(adapter, rows).text
    return [texts[place] for place in places.reshape(-1).tolist()]
