"""A reward that an agent in training learns from a judge beside it; what `laurel.rewards.methods.online` pays.

Every so many environment steps the agent asks about captions that it has met. The answer to a question counts `delay`
looks later, and training waits for it if it must: so labels count from the same step on in every run, whenever they
came, and a run is repeatable to the bit wherever the judge answers alike. Only where an answer does not come within
`patience` seconds, training goes on without it, and takes answers as they come until the judge has caught up. From
which step on each label counted is written down either way; a run that is resumed, or replayed from that log, goes by
it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laurel.console import tell
from laurel.data.json_file import write_json
from laurel.envs.base import EnvAdapter, FloatArray, IntArray
from laurel.envs.captioner import NOTHING
from laurel.errors import DataError, RefusedLabelsError
from laurel.feedback.mailbox import CLOSED, READY, Item, Mailbox, Office
from laurel.feedback.online_quality import FIRST_LOOK, check_labels, measured
from laurel.params.rewards import OnlineParams
from laurel.rewards.base import UNPAID, Steps
from laurel.rewards.method import RewardContext
from laurel.rewards.online_artefact import CONFIG, labels_to_replay, read_labels, save
from laurel.rewards.online_fit import CaptionLearner
from laurel.rewards.stored import CARD, Described
from laurel.seeding import derive_seed, generator

POLL_SECONDS = 0.002


class OnlineReward:
    """Pays captions by the labels that count so far.

    Args:
        name: of the reward.
        quantile: of shaping, where its threshold is.
        arm: of the agent.
        seed: of the agent.
        office: whom to ask; None: the labels are those of `settings.replay`.
        mailbox: where the judge is asked; None as `office`.

    Raises:
        DataError: there is no judge to ask, or no log to replay.
    """

    def __init__(
        self,
        name: str,
        settings: OnlineParams,
        params: RewardContext,
        adapter: EnvAdapter,
        quantile: float,
        arm: str,
        seed: int,
        office: Office | None,
        mailbox: Path | None,
    ) -> None:
        self.name = name
        self.threshold = 0.0
        self.unseen = 0
        self._own = settings
        self._agent = f"{arm} seed {seed}"
        self._events, self._describe = (adapter.events() if settings.listed else ()), adapter.describe
        self._card = Described(Path(), name, settings, params.env, params.caption.with_action).card()
        self._desk = office.name if office else ""
        self._mailbox: Mailbox | None = None
        self._judge: dict[str, Any] = {}
        self._log: dict[int, list[dict[str, Any]]] = {}
        self._logged_until = 0
        if settings.replay is not None:
            self._follow(labels_to_replay(Path(settings.replay), arm, seed, name), 2**62)
        elif mailbox is None:
            raise DataError(
                f"rewards.{name}: is learned while agents are trained, from a judge beside them, and no judge runs "
                "here. Train its agents with laurel train-agents."
            )
        else:
            self._mailbox = Mailbox(mailbox)
            self._judge = json.loads(self._mailbox.fact(READY) or "{}").get(self._desk, {})
        self._seed = derive_seed(seed, "online", name)
        self._rng = generator(self._seed, "questions")
        self._pairs = settings.form == "ranking"
        self._learned = CaptionLearner(settings, quantile, self._seed)
        self._texts: list[str] = []
        self._ids: dict[str, int] = {}
        self._places = np.full(1, NOTHING)
        """_places[id + 1] is where a caption of training stands in _texts."""
        self._counts = np.zeros(0, dtype=np.int64)
        """(V,) how often each caption was met."""
        self._asked_about = np.zeros(0, dtype=np.int64)
        """(V,) questions that show it."""
        self._labelled = np.zeros(0, dtype=np.bool_)
        self._table = np.full(1, UNPAID)
        """_table[id + 1] is paid; id -1 has nothing to say."""
        self._known: set[Item] = set()
        """Questions that are asked or answered."""
        self._open: dict[Item, tuple[int, int | None]] = {}
        """Question -> steps that were done when it was asked, and its number in the mailbox, once it is there."""
        self._labels: list[dict[str, Any]] = []
        self._usable = 0
        """Of these with an answer that can be learned from."""
        self._rows: list[dict[str, Any]] = []
        self._fitted = 0
        """Labels that the reward was last fitted to."""
        self._annotate = None if settings.replay else params.annotate.of_judge(settings.judge)
        self._adapter = adapter
        self._gates_at = FIRST_LOOK
        """Labels at which the gates are looked at next."""
        self._steps, self._next = 0, settings.every
        self._looks = False
        self._asked = self._dropped = 0
        self._left_out = 0
        """Captions beyond those that are kept, which are paid nothing."""
        self._unmet = 0
        """Questions about captions that were not met when they were asked."""
        self._late = self._ever_late = False
        self._since = _Since()

    def begin(self, n_envs: int) -> None:
        """Do nothing: a caption is paid alike in all episodes."""

    def pay(self, steps: Steps) -> FloatArray:
        """Return what captions are paid by the labels that count; look for answers where it is time."""
        if not self._steps and self._own.listed:
            self._grow(list(filter(None, map(self._describe, self._events))))
        known = len(self._places) - 1
        if len(steps.texts) > known:
            new = steps.texts[known:]
            self._grow(new)
            self._places = np.append(self._places, [self._ids.get(text, NOTHING) for text in new])
        captions = self._places[steps.captions + 1]
        if self._looks:
            self._looks = False
            self._take()
            self._check()
            self._fit()
        if len(self._texts) >= len(self._table):
            self._score(len(self._table) - 1)
        self._meet(captions)
        self._steps += steps.valid.size
        if self._steps >= self._next:
            self._account()
            self._ask()
            self._next, self._looks = self._steps + self._own.every, True
        return self._table[captions + 1]

    def _grow(self, texts: Sequence[str]) -> None:
        """Make room for captions, as far as they are new and not too many."""
        new = [text for text in dict.fromkeys(texts) if text not in self._ids]
        room = self._own.captions - len(self._texts)
        self._left_out += max(len(new) - room, 0)
        new = new[:room]
        self._ids.update((text, i) for i, text in enumerate(new, len(self._texts)))
        self._texts += new
        if more := len(new):
            self._counts = np.append(self._counts, np.zeros(more, dtype=np.int64))
            self._asked_about = np.append(self._asked_about, np.zeros(more, dtype=np.int64))
            self._labelled = np.append(self._labelled, np.zeros(more, dtype=np.bool_))

    def _meet(self, ids: IntArray) -> None:
        met = np.bincount(ids.reshape(-1) + 1, minlength=len(self._texts) + 1)[1:]
        self._counts += met
        self._since.captioned += int(met.sum())
        self._since.labelled += int(met[self._labelled].sum())

    # -- answers --------------------------------------------------------------------------------
    def _take(self) -> None:
        """Let answers count that are due."""
        if self._steps < self._logged_until:
            for row in self._log.get(self._steps, ()):
                self._count(row)
            return
        if self._mailbox is None:
            return
        self._post()
        due = self._due()
        found = self._mailbox.answers([number for _, number in due])
        if not self._late and len(found) < len(due):
            found = self._wait(self._mailbox, [number for _, number in due])
        for item, number in due:
            if number in found:
                verdict = found[number]
                asked, _ = self._open[item]
                first, second = item
                row = {"asked": asked, "step": self._steps, "first": first, "second": second, **verdict._asdict()}
                self._count(row)
        self._note_lateness(len(due) - len(found))

    def _due(self) -> list[tuple[Item, int]]:
        """Return the questions whose answers count now, the oldest first."""
        until = self._steps - (self._own.delay - 1) * self._own.every
        return [(item, number) for item, (asked, number) in self._open.items() if asked <= until and number is not None]

    def _wait(self, mailbox: Mailbox, numbers: Sequence[int]) -> dict[int, Any]:
        """Wait for answers for as long as patience lasts."""
        until = time.monotonic() + self._own.patience
        while True:
            found = mailbox.answers(numbers)
            if len(found) == len(numbers) or time.monotonic() >= until or mailbox.fact(CLOSED) is not None:
                return found
            time.sleep(POLL_SECONDS)

    def _note_lateness(self, missing: int) -> None:
        if missing and not self._late:
            self._ever_late = True
            tell(
                f"{self._agent}: {missing:,} answers of the judge are late. Training goes on with the "
                f"{len(self._labels):,} labels that it has, and takes others as they come."
            )
        elif self._late and not missing:
            tell(f"{self._agent}: the judge has caught up; {len(self._labels):,} labels count.")
        self._late = missing > 0

    def _count(self, row: Mapping[str, Any]) -> None:
        """Let an answer count from here on."""
        item = row["first"], row["second"]
        self._open.pop(item, None)
        self._labels.append(dict(row))
        self._since.lags.append(row["step"] - row["asked"])
        if row["p"] is not None:
            self._usable += 1
            try:
                self._labelled[[self._ids[text] for text in item if text]] = True
            except KeyError as error:
                raise DataError(
                    f"{self._agent}: has not met {error} where the log of labels says it has, so that log is of "
                    "another run. Replay one with the same params and seeds."
                ) from None

    def _check(self) -> None:
        """Look at the gates where there are enough answers since the last look.

        Raises:
            RefusedLabelsError: labels do not pass; what was answered is in the store, and is not asked again.
        """
        if self._annotate is None or len(self._labels) < self._gates_at:
            return
        self._gates_at = 2 * len(self._labels)
        refusals = check_labels(self._annotate, self._quality()).refusals
        if refusals:
            raise RefusedLabelsError(
                f"rewards.{self.name}: {self._agent} stopped training at {self._steps:,} steps, after "
                f"{len(self._labels):,} answers of the judge beside it. {' '.join(refusals)}"
            )

    def _quality(self) -> dict[str, Any]:
        return measured(self._labels, self._adapter, self._seed)

    # -- questions ------------------------------------------------------------------------------
    def _ask(self) -> None:
        """Ask about captions that were met."""
        room = min(self._own.at_once, self._own.questions - self._asked)
        about = self._drawn_pairs if self._pairs else self._new_captions
        items = about(np.flatnonzero(self._counts > 0), room)
        if self._own.listed:
            unmet = about(np.arange(len(self._texts)), min(room - len(items), self._own.questions // 2 - self._unmet))
            self._unmet += len(unmet)
            items += unmet
        for item in items:
            self._open[item] = self._steps, None
        self._known.update(items)
        self._asked += len(items)
        self._drop()
        if self._mailbox is not None and self._steps >= self._logged_until:
            self._post()

    def _new_captions(self, among: IntArray, room: int) -> list[Item]:
        """Return captions that were not asked about yet, the most frequent first."""
        new = among[self._asked_about[among] == 0]
        new = new[np.argsort(-self._counts[new], kind="stable")][: max(room, 0)]
        self._asked_about[new] += 1
        return [(self._texts[i], "") for i in new.tolist()]

    def _drawn_pairs(self, among: IntArray, room: int) -> list[Item]:
        """Return pairs of captions: of one that was asked about least, and of another at random."""
        order = self._rng.permutation(among)
        full: set[int] = set()
        found: list[Item] = []
        while len(found) < room and len(full) < len(order):
            left = order[~np.isin(order, list(full))] if full else order
            first = int(left[self._asked_about[left].argmin()])
            for second in self._rng.permutation(order).tolist():
                item = _ordered(self._texts[first], self._texts[second])
                if first != second and item not in self._known:
                    found.append(item)
                    self._known.add(item)
                    self._asked_about[[first, second]] += 1
                    break
            else:
                full.add(first)
        return found

    def _drop(self) -> None:
        """Take back the oldest questions where too many are open; they may be asked again."""
        for item in list(self._open)[: max(len(self._open) - self._own.queue, 0)]:
            _, number = self._open.pop(item)
            self._dropped += 1
            self._asked -= 1
            self._known.discard(item)
            self._asked_about[[self._ids[text] for text in item if text]] -= 1
            if number is not None and self._mailbox is not None:
                self._mailbox.withdraw([number])

    def _post(self) -> None:
        """Put questions into the mailbox that are not there yet."""
        assert self._mailbox is not None
        new = [item for item, (_, number) in self._open.items() if number is None]
        for item, number in zip(new, self._mailbox.post(self._desk, new) if new else (), strict=True):
            self._open[item] = self._open[item][0], number

    # -- learning -------------------------------------------------------------------------------
    def _fit(self) -> None:
        """Learn anew from all labels, where there are enough new ones."""
        usable = [row for row in self._labels if row["p"] is not None]
        if len(usable) == self._fitted or len(usable) < (1 + self._own.growth) * self._fitted:
            return
        answers = np.array([row["p"] for row in usable], dtype=np.float64)
        if self._own.shuffled:
            answers = answers[generator(self._seed, "shuffled", len(answers)).permutation(len(answers))]
        self._fitted = len(usable)
        self._learned.fit(self._texts, self._ids, self._counts, usable, answers)
        self.threshold = self._learned.threshold
        self._score(0)

    def _score(self, start: int) -> None:
        """Pay captions from number `start` on by the fitted reward."""
        paid = self._learned.paid(self._texts, start)
        self._table = np.append(self._table[: start + 1], paid.astype(np.float32))

    # -- the account, and what is kept ------------------------------------------------------------
    def _account(self) -> None:
        """Write down how labels grew since the last look."""
        since = self._since
        self._rows.append(
            {
                "env_steps": self._steps,
                "labels": self._usable,
                "open": len(self._open),
                "dropped": self._dropped,
                "captions": int((self._counts > 0).sum()),
                "coverage": since.labelled / since.captioned if since.captioned else None,
                "lag": float(np.mean(since.lags)) if since.lags else None,
                "late": self._late,
            }
        )
        self._since = _Since()

    def keep(self, place: Path) -> None:
        """Write what is learned, and the log, into a new directory of an agent's checkpoint."""
        place.mkdir(parents=True)
        config: dict[str, Any] = {"labels": self._usable, "questions": self._asked, "late": self._ever_late}
        config |= self._judge
        if self._labels:
            config["quality"] = quality = self._quality()
            if self._annotate is not None:
                checked = check_labels(self._annotate, quality)
                config["warnings"] = [*config.get("warnings", ()), *checked.refusals, *checked.warnings, *checked.notes]
        if self._left_out:
            too_many = (
                f"more than {self._own.captions:,} different captions were met; later ones were paid nothing and not "
                f"asked about. Raise rewards.{self.name}.captions, or make captions coarser."
            )
            config["warnings"] = [*config.get("warnings", ()), too_many]
        save(place, self._learned.made, config, self._labels, self._rows)
        write_json(place / CARD, self._card)

    def resume(self, place: Path, steps: int) -> None:
        """Let labels count as the log of a checkpoint says, up to its environment steps.

        Raises:
            DataError: the log is missing or damaged.
        """
        if self._own.replay is None:
            self._follow(read_labels(place), steps)
        config = json.loads((place / CONFIG).read_text(encoding="utf-8"))
        self._ever_late = bool(config.get("late"))

    def _follow(self, rows: Sequence[dict[str, Any]], until: int) -> None:
        self._logged_until = until
        for row in rows:
            self._log.setdefault(row["step"], []).append(row)


class _Since:
    """What happened since the last look for answers."""

    def __init__(self) -> None:
        self.captioned = self.labelled = 0
        """Steps with a caption, and of these with one that has a label."""
        self.lags: list[int] = []


def _ordered(one: str, other: str) -> Item:
    """Return two texts in a random order that is the same for every agent."""
    first, second = sorted((one, other))
    return (second, first) if derive_seed(0, first, second) % 2 else (first, second)
