"""The store of all answers of language models, so that no question is paid for twice.

An SQLite database that several processes may use concurrently. A question is identified by a digest of model, messages
and sampling. Failures are not stored. Raw answers are stored, so that labels can be derived again without a call.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any

from laurel.data.disk import FULL, is_full
from laurel.data.replacing import sync_directory
from laurel.errors import DataError
from laurel.llm import replies
from laurel.llm.chat import ChatRequest, Identity, Reply, Sampling
from laurel.llm.owners import has_died, this_owner
from laurel.llm.responses_file import BUSY_SECONDS, check_version, make_ready, read_only_address, transaction

LEASE_SECONDS = 600.0
"""Expiry of the claims of a process that died on another machine. A running process renews its claims with every new
one; one that died on this machine loses them at once."""
SYNC_SECONDS = 0.2
"""Minimum time between syncs while answers arrive. Waiting for the disk after every answer (SQLite's `synchronous =
FULL`) would slow down a fast server."""
MAX_VARIABLES = 8192
"""Maximum number of keys per statement."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question, its answer, and the cost."""

    key: str
    identity: Identity
    request: ChatRequest
    reply: Reply
    prompt: str = ""
    """Name of the question's prompt."""
    prompt_digest: str = ""
    cost_usd: float | None = None
    """Cost at the price when it was asked; None if unknown."""


@dataclass(frozen=True, slots=True)
class _Context:
    """The shared part of many questions."""

    id: str
    """Digest of it and of the example, so that stores can be joined."""
    example: bytes
    """The messages of one of them; those of the others are stored as differences."""


@dataclass(frozen=True, slots=True)
class Usual:
    """Statistics of answers; None if no answer has the value."""

    output_tokens: float | None
    """Mean tokens of an answer."""
    seconds: float | None
    """Mean latency."""
    longest: int | None
    """Tokens of the longest answer."""


class ResponseStore:
    """The answers of one database file, which is created if necessary.

    Args:
        read_only: open an existing file, and write nothing, neither into it nor beside it.

    Raises:
        DataError: the file is not such a database, is of another version, or cannot be written.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._owner = this_owner()
        self._contexts: dict[str, _Context] = {}
        self._log = path.with_name(f"{path.name}-wal")
        self._unsynced, self._synced_at = False, 0.0
        with self._explained():
            if read_only:
                self._connection = sqlite3.connect(read_only_address(path), timeout=BUSY_SECONDS, uri=True)
                check_version(self._connection, path)
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")  # with WAL: a crash of this process loses nothing
            make_ready(self._connection, path)
            sync_directory(path.parent)

    def get(self, keys: Sequence[str]) -> dict[str, Reply]:
        """Return the usable answers by key; damaged parts of an answer count as unknown."""
        columns = "text, logprobs, input_tokens, output_tokens, finish_reason, seconds, cached_tokens"
        return {key: _reply(*row) for key, *row in self._rows_of(keys, columns) if not replies.is_damaged(*row[:2])}

    def contents(self, keys: Sequence[str]) -> Iterator[tuple[str, str, dict[str, float] | None, str]]:
        """Yield the usable stored answers: key, text, log-probabilities if any, finish reason."""
        columns = f"substr(text, 1, {replies.LONGEST_TEXT}), logprobs, finish_reason"
        for key, text, logprobs, ended in self._rows_of(keys, columns):
            if logprobs is None:
                yield key, str(text), None, replies.finish_reason(ended)
            elif not replies.is_damaged(text, logprobs):
                yield key, str(text), replies.stored_scores(logprobs), replies.finish_reason(ended)

    def damaged(self, keys: Sequence[str]) -> set[str]:
        """Return the keys of unusable stored answers, which are replaced by asking again."""
        rows = self._rows_of(keys, "text, logprobs")
        return {key for key, text, logprobs in rows if replies.is_damaged(text, logprobs)}

    def ended(self, keys: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Yield key, text and finish reason of stored answers."""
        columns = f"substr(text, 1, {replies.LONGEST_TEXT}), finish_reason"
        for key, text, reason in self._rows_of(keys, columns):
            yield key, str(text), replies.finish_reason(reason)

    def _rows_of(self, keys: Sequence[str], columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the key and these columns of stored answers."""
        with self._explained():
            for start in range(0, len(keys), MAX_VARIABLES):
                batch = keys[start : start + MAX_VARIABLES]
                marks = ",".join("?" * len(batch))
                query = (  # by row: questions asked together are stored together
                    f"SELECT key, {columns} FROM responses WHERE rowid IN "  # noqa: S608  names and marks
                    f"(SELECT rowid FROM responses WHERE key IN ({marks}))"
                )
                yield from self._connection.execute(query, batch).fetchall()

    def claim(self, keys: Sequence[str]) -> set[str]:
        """Claim and return the keys that are neither answered nor being asked by another process."""
        moment = time.time()
        with self._explained(), transaction(self._connection):
            answered = set(self.get(keys))
            wanted = [key for key in keys if key not in answered]
            self._connection.execute("DELETE FROM claims WHERE until < ?", (moment,))
            self._connection.execute(
                "UPDATE claims SET until = ? WHERE owner = ?", (moment + LEASE_SECONDS, self._owner)
            )
            claimed = self._insert_claims(wanted, moment)
            if len(claimed) < len(wanted) and self._free_the_claims_of_the_dead():
                claimed = self._insert_claims(wanted, moment)
            return claimed

    def _insert_claims(self, keys: Sequence[str], moment: float) -> set[str]:
        """Claim free keys; return those of the keys that this process has claimed."""
        rows = [(key, self._owner, moment + LEASE_SECONDS) for key in keys]
        self._connection.executemany("INSERT OR IGNORE INTO claims VALUES (?, ?, ?)", rows)
        return {key for key in keys if self._claimant(key) == self._owner}

    def _free_the_claims_of_the_dead(self) -> bool:
        owners = [owner for (owner,) in self._connection.execute("SELECT DISTINCT owner FROM claims")]
        dead = [(owner,) for owner in owners if has_died(owner)]
        self._connection.executemany("DELETE FROM claims WHERE owner = ?", dead)
        return bool(dead)

    def _claimant(self, key: str) -> str | None:
        row = self._connection.execute("SELECT owner FROM claims WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, exchange: Exchange) -> bool:
        """Store an answer; return whether it was kept, as is the first usable one to a question.

        It survives the end of this process, and a power failure from the next sync on: at `flush`, or at an answer that
        arrives SYNC_SECONDS after the last sync.
        """
        reply = exchange.reply
        messages = _json([asdict(message) for message in exchange.request.messages])
        with self._explained():
            context = self._context(exchange, messages)
            row = (
                exchange.key,
                context.id,
                _storable(reply.text),
                None if reply.logprobs is None else json.dumps(reply.logprobs, sort_keys=True),
                reply.input_tokens,
                reply.output_tokens,
                reply.finish_reason,
                reply.seconds,
                reply.cached_tokens,
                time.time(),
                _packed(messages, context.example),
                exchange.cost_usd,
            )
            with transaction(self._connection):
                verb = "REPLACE" if self.damaged([exchange.key]) else "INSERT OR IGNORE"
                marks = ",".join("?" * len(row))
                kept = self._connection.execute(f"{verb} INTO responses VALUES ({marks})", row).rowcount > 0
                self._connection.execute("DELETE FROM claims WHERE key = ?", (exchange.key,))
        self._unsynced = True
        if time.monotonic() - self._synced_at > SYNC_SECONDS:
            self.flush()
        return kept

    def _context(self, exchange: Exchange, messages: str) -> _Context:
        """Return the shared part of an exchange, which is stored once."""
        shared = {
            **asdict(exchange.identity),
            "prompt": exchange.prompt,
            "prompt_digest": exchange.prompt_digest,
            "sampling": exchange.request.sampling.recorded(),
        }
        content = _json(shared)
        if content not in self._contexts:
            with transaction(self._connection):
                select = "SELECT id, example FROM contexts WHERE content = ? ORDER BY id"
                row = self._connection.execute(select, (content,)).fetchone()
                if row is None:
                    digest = hashlib.blake2b(f"{len(content)}:{content}{messages}".encode(), digest_size=8).hexdigest()
                    row = digest, messages
                    self._connection.execute("INSERT INTO contexts VALUES (?, ?, ?)", (digest, content, messages))
            self._contexts[content] = _Context(row[0], row[1].encode())
        return self._contexts[content]

    def usual(self, identity: Identity, prompt_digest: str) -> Usual:
        """Return statistics of a model's answers to a prompt, ignoring answers without values."""
        wanted = {**asdict(identity), "prompt_digest": prompt_digest}
        with self._explained():
            contexts = self._connection.execute("SELECT id, content FROM contexts").fetchall()
            ids = [number for number, content in contexts if wanted.items() <= json.loads(content).items()]
            marks = ",".join("?" * len(ids))
            tokens = "iif(typeof(output_tokens) = 'integer', output_tokens, NULL)"
            query = (
                f"SELECT avg({tokens}), avg(nullif(seconds, 0)), max({tokens}) FROM responses "  # noqa: S608
                f"WHERE context IN ({marks})"
            )
            return Usual(*self._connection.execute(query, ids).fetchone())

    def has_answers(self, identity: Identity, prompt_digest: str, sampling: Sampling) -> bool:
        """Whether a model has answered any question with this prompt and sampling, in any vote."""
        wanted = {**asdict(identity), "prompt_digest": prompt_digest, "sampling": {**sampling.recorded(), "seed": None}}
        with self._explained():
            contexts = [json.loads(content) for (content,) in self._connection.execute("SELECT content FROM contexts")]
        return any(wanted == {key: _unvoted(kept[key]) for key in wanted} for kept in contexts)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all stored data of each answer, in the order of keys."""
        columns = "text, logprobs, input_tokens, output_tokens, finish_reason, seconds, cached_tokens"
        query = (
            f"SELECT key, content, example, messages, cost_usd, asked_at, {columns} FROM responses "  # noqa: S608  only names
            "JOIN contexts ON contexts.id = responses.context ORDER BY key"
        )
        with self._explained():
            for key, content, example, messages, cost, asked_at, *rest in self._connection.execute(query):
                shared = json.loads(content)
                reply = _reply(*rest, full=True)
                kept = reply._asdict()
                del kept["lost"]  # it is not stored
                yield {
                    "key": key,
                    **shared,
                    "sampling": json.dumps(shared["sampling"], sort_keys=True),
                    "messages": _unpacked(messages, example.encode()),
                    "cost_usd": cost if isinstance(cost, float) and isfinite(cost) else None,
                    "asked_at": replies.seconds(asked_at),
                    **kept,
                    "logprobs": None if reply.logprobs is None else rest[1],
                    "damaged": replies.is_damaged(*rest[:2]),
                }

    def release(self, keys: Iterable[str]) -> None:
        """Release claims, so that other processes can ask these questions."""
        with self._explained(), transaction(self._connection):
            self._connection.executemany(
                "DELETE FROM claims WHERE key = ? AND owner = ?", [(key, self._owner) for key in keys]
            )

    def forget(self, keys: Iterable[str]) -> None:
        """Delete answers, also from the ledger of batches (`laurel.llm.batch_ledger`), or their batch would give the
        same ones again.
        """
        rows = [(key,) for key in keys]
        with self._explained(), transaction(self._connection):
            self._connection.executemany("DELETE FROM responses WHERE key = ?", rows)
            if self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'batch_lines'").fetchone():
                self._connection.executemany("DELETE FROM batch_lines WHERE key = ?", rows)

    def __len__(self) -> int:
        with self._explained():
            return int(self._connection.execute("SELECT count(*) FROM responses").fetchone()[0])

    def flush(self) -> None:
        """Sync all answers to disk, so that they survive a power failure."""
        if not self._unsynced:
            return
        with self._explained():
            try:
                log = os.open(self._log, os.O_RDWR)
            except FileNotFoundError:  # SQLite has moved it into the database, and synced that itself
                return
            try:
                os.fsync(log)
            finally:
                os.close(log)
        self._unsynced, self._synced_at = False, time.monotonic()

    def close(self) -> None:
        """Sync all answers to disk and close the file."""
        try:
            self.flush()
        finally:
            with self._explained():
                self._connection.close()

    def __enter__(self) -> ResponseStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if is_full(error):
                raise DataError(f"{self.path}: {FULL}") from None
            raise DataError(
                f"{self.path}: cannot be used as the store of answers ({error}). Choose another "
                "annotate.language_model.responses, or repair the file; running again does not delete its answers."
            ) from None


def _reply(
    text: Any, logprobs: Any, read: Any, written: Any, ended: Any, seconds: Any, cached: Any, *, full: bool = False
) -> Reply:
    """Return a stored answer; each field is validated again, as other programs can write to the file."""
    return Reply(
        text=str(text) if full else str(text)[: replies.LONGEST_TEXT],
        logprobs=replies.stored_scores(logprobs),
        input_tokens=replies.token_count(read),
        output_tokens=replies.token_count(written),
        finish_reason=replies.finish_reason(ended),
        seconds=replies.seconds(seconds),
        cached_tokens=replies.token_count(cached),
    )


def _unvoted(shared: Any) -> Any:
    return {**shared, "seed": None} if isinstance(shared, dict) else shared


def _json(content: Any) -> str:
    return _storable(json.dumps(content, sort_keys=True, ensure_ascii=False))


def _packed(text: str, example: bytes) -> bytes:
    """Compress a text relative to an example."""
    packing = zlib.compressobj(zdict=example)
    return packing.compress(text.encode()) + packing.flush()


def _unpacked(packed: bytes, example: bytes) -> str:
    return zlib.decompressobj(zdict=example).decompress(packed).decode()


def _storable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot represent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
