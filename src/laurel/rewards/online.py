"""A reward that an agent learns from an online judge during training; the reward of `laurel.rewards.methods.online`.

Every `settings.every` environment steps the agent asks about captions that it has met, and refits the reward to the
labels in effect. `laurel.rewards.online_asking` chooses the captions, and determines when an answer takes effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from laurel.arrays import FloatArray, IntArray
from laurel.data.json_file import read_json, write_json
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import NO_CAPTION
from laurel.errors import DataError, RefusedLabelsError
from laurel.feedback.online_quality import FIRST_LOOK, PROMPT, check_labels, measured
from laurel.feedback.question_queue import Topic
from laurel.params.rewards import OnlineParams
from laurel.rewards.base import UNPAID, Memoryless, Steps
from laurel.rewards.method import AgentsReward, RewardContext
from laurel.rewards.online_artefact import CONFIG, labels_to_replay, read_labels, save
from laurel.rewards.online_asking import Label, MetCaptions, Questions
from laurel.rewards.online_fit import CaptionLearner
from laurel.rewards.stored import CARD, Described
from laurel.seeding import derive_seed, generator


class OnlineReward(Memoryless):
    """Rewards captions by the labels in effect.

    Args:
        reward: identifies the reward and its agent; `queue` is None if labels are replayed from `settings.replay`.
        topic: the judge to ask; None as `queue`.

    Raises:
        DataError: there is neither a judge to ask nor a log to replay.
    """

    def __init__(
        self,
        reward: AgentsReward,
        settings: OnlineParams,
        context: RewardContext,
        adapter: EnvAdapter,
        topic: Topic | None,
    ) -> None:
        if settings.replay is None and reward.queue is None:
            raise DataError(
                f"rewards.{reward.name}: is learned while agents are trained, from an online judge, and no judge runs "
                "here. Train its agents with laurel train-agents."
            )
        self.name = reward.name
        self.threshold = 0.0
        self._own, self._adapter = settings, adapter
        self._agent = reward.agent
        with_action = context.caption.with_action
        self._card = Described(Path(), reward.name, settings, context.env, with_action, settings.judge).card()
        self._prompt = PROMPT if settings.form == "ranking" else f"rewards.{reward.name}.prompt"
        self._annotate = None if settings.replay else context.annotate.of_judge(settings.judge)
        self._seed = derive_seed(reward.seed, "online", reward.name)
        self._met = MetCaptions(settings.captions)
        place = None if settings.replay else reward.queue
        self._questions = Questions(settings, self._met, self._agent, self._seed, topic.name if topic else "", place)
        self._judge = self._questions.judge
        if settings.replay is not None:
            self._questions.follow(labels_to_replay(Path(settings.replay), reward.arm, reward.seed, reward.name), 2**62)
        self._learned = CaptionLearner(settings, reward.quantile, self._seed)
        self._places = np.full(1, NO_CAPTION)
        """_places[id + 1] is the index among met captions of the caption with this id in training."""
        self._table = np.full(1, UNPAID)
        """_table[index + 1] is the reward of a caption; index -1 means no caption."""
        self._labelled: set[int] = set()
        """Indices of the captions with a label."""
        self._labels: list[Label] = []
        self._usable = 0
        """Number of labels that can be learned from."""
        self._fitted = 0
        """Number of labels of the last fit."""
        self._gates_at = FIRST_LOOK
        """Number of labels at which the gates are checked next."""
        self._rows: list[dict[str, Any]] = []
        self._steps, self._next = 0, settings.every
        self._looks = False
        self._since = _Since()
        self._captioned = self._covered = 0
        """Number of steps with a caption so far, and of those with a labelled caption."""

    def pay(self, steps: Steps) -> FloatArray:
        """Return the rewards of captions by the labels in effect; poll for answers when due."""
        if not self._steps and self._own.listed:
            self._met.add(list(filter(None, map(self._adapter.describe, self._adapter.events()))))
        known = len(self._places) - 1
        if len(steps.texts) > known:
            new = steps.texts[known:]
            self._met.add(new)
            self._places = np.append(self._places, [self._met.ids.get(text, NO_CAPTION) for text in new])
        captions = self._places[steps.captions + 1]
        if self._looks:
            self._looks = False
            for label in self._questions.labels(self._steps, len(self._labels)):
                self._count(label)
            self._check()
            self._fit()
        if len(self._met.texts) >= len(self._table):
            self._score(len(self._table) - 1)
        self._meet(captions)
        self._steps += steps.valid.size
        if self._steps >= self._next:
            self._account()
            self._questions.ask(self._steps)
            self._next, self._looks = self._steps + self._own.every, True
        return self._table[captions + 1]

    def _meet(self, ids: IntArray) -> None:
        counts = np.bincount(ids.reshape(-1) + 1, minlength=len(self._met.texts) + 1)[1:]
        self._met.counts += counts
        captioned, labelled = int(counts.sum()), int(counts[list(self._labelled)].sum())
        self._since.captioned += captioned
        self._since.labelled += labelled
        self._captioned += captioned
        self._covered += labelled

    # -- learning -------------------------------------------------------------------------------
    def _count(self, label: Mapping[str, Any]) -> None:
        """Let a label take effect from this step on."""
        self._labels.append(dict(label))
        self._since.lags.append(label["step"] - label["asked"])
        if label["p"] is not None:
            self._usable += 1
            try:
                self._labelled.update(self._met.of((label["first"], label["second"])))
            except KeyError as error:
                raise DataError(
                    f"{self._agent}: never met {error}, unlike the agent in the log of labels, so the log belongs to "
                    f"another run. Replay one with the same params and seeds."
                ) from None

    def _check(self) -> None:
        """Raise RefusedLabelsError if labels fail the gates, which are checked at growing intervals."""
        if self._annotate is None or len(self._labels) < self._gates_at:
            return
        self._gates_at = 2 * len(self._labels)
        refusals = check_labels(self._annotate, self._quality(), self._prompt).refusals
        if refusals:
            raise RefusedLabelsError(
                f"rewards.{self.name}: {self._agent} stopped training at {self._steps:,} steps, after "
                f"{len(self._labels):,} answers of its online judge. {' '.join(refusals)}"
            )

    def _quality(self) -> dict[str, Any]:
        return measured(self._labels, self._adapter, self._seed)

    def _fit(self) -> None:
        """Refit the reward to all labels, if there are enough new ones."""
        usable = [row for row in self._labels if row["p"] is not None]
        if len(usable) == self._fitted or len(usable) < (1 + self._own.growth) * self._fitted:
            return
        answers = np.array([row["p"] for row in usable], dtype=np.float64)
        if self._own.shuffled:
            answers = answers[growing_permutation(len(answers), self._seed)]
        self._fitted = len(usable)
        self._learned.fit(self._met.texts, self._met.ids, self._met.counts, usable, answers)
        self.threshold = self._learned.threshold
        self._score(0)

    def _score(self, start: int) -> None:
        """Score captions from index `start` on with the fitted reward."""
        paid = self._learned.paid(self._met.texts, start)
        self._table = np.append(self._table[: start + 1], paid.astype(np.float32))

    # -- statistics and storage ------------------------------------------------------------
    def _account(self) -> None:
        """Record the growth of labels since the last check."""
        since = self._since
        self._rows.append(
            {
                "env_steps": self._steps,
                "labels": self._usable,
                "open": self._questions.open,
                "dropped": self._questions.dropped,
                "captions": int((self._met.counts > 0).sum()),
                "coverage": since.labelled / since.captioned if since.captioned else None,
                "lag": float(np.mean(since.lags)) if since.lags else None,
                "late": self._questions.late,
            }
        )
        self._since = _Since()

    def keep(self, place: Path) -> None:
        """Write the learned reward and the log into a new directory of an agent's checkpoint."""
        place.mkdir(parents=True)
        asking = self._questions
        config: dict[str, Any] = {"labels": self._usable, "questions": asking.asked, "late": asking.ever_late}
        config["coverage"] = self._covered / self._captioned if self._captioned else None
        config |= self._judge
        if self._labels:
            config["quality"] = quality = self._quality()
            if self._annotate is not None:
                checked = check_labels(self._annotate, quality, self._prompt)
                config["warnings"] = [*config.get("warnings", ()), *checked.refusals, *checked.warnings, *checked.notes]
        if self._met.left_out:
            too_many = (
                f"more than {self._own.captions:,} different captions were met; later ones had no reward and were not "
                f"asked about. Raise rewards.{self.name}.captions, or make captions coarser."
            )
            config["warnings"] = [*config.get("warnings", ()), too_many]
        save(place, self._learned.made, config, self._labels, self._rows)
        write_json(place / CARD, self._card)

    def resume(self, place: Path, steps: int) -> None:
        """Replay the labels of a checkpoint's log, up to its number of environment steps.

        Raises:
            DataError: the log is missing or damaged.
        """
        if self._own.replay is None:
            self._questions.follow(read_labels(place), steps)
        config = read_json(place / CONFIG)
        self._questions.ever_late = bool(config.get("late"))


def growing_permutation(count: int, seed: int) -> IntArray:
    """Return a random permutation (count,); with a larger `count`, each further entry changes at most one other.

    So a control's wrong answers stay the same from one fit to the next, as the right ones of other arms do. It is the
    Fisher-Yates shuffle, "inside out"; all permutations are equally likely.
    """
    order = np.arange(count)
    draws = generator(seed, "shuffled").random(count)
    for last, draw in enumerate(draws):
        position = int(draw * (last + 1))
        order[last], order[position] = order[position], last
    return order


class _Since:
    """Statistics since the last check for answers."""

    def __init__(self) -> None:
        self.captioned = self.labelled = 0
        """Number of steps with a caption, and of those with a labelled caption."""
        self.lags: list[int] = []
