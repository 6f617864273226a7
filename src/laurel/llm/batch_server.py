"""A server's Batch API through the `openai` package: files, batches and the outcome of each request."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import openai
from openai.types import Batch

from laurel.console import tell
from laurel.llm import retries
from laurel.llm.batch_ledger import Entry
from laurel.llm.batch_wire import PATH, Again, read_line
from laurel.llm.chat import ChatRequest, Failure, RefusedError, Reply
from laurel.llm.chat_wire import Dialect
from laurel.llm.openai_chat import by_proxy, read_headers, read_key
from laurel.params.judges import OPENAI, OpenAIParams

TRANSFER_SECONDS = 1200.0
"""Enough for a file of 200 MB over a slow line."""
CLOCKS_APART = 3600.0
"""Maximum difference between a server's clock and ours, in seconds."""
TOKEN = "laurel"  # noqa: S105  the name of a field, not a secret
"""Key of our token in a batch's metadata."""
NO_SUCH_PATH = frozenset({404, 405, 501})


class UnreachableError(RefusedError):
    """The server does not answer at the moment."""


class BatchServer:
    """A server with a Batch API.

    Args:
        backoff: seconds before another attempt to create a batch.

    Raises:
        RefusedError: the key is not in the environment.
    """

    def __init__(self, params: OpenAIParams, backoff: float = 1.0) -> None:
        key = read_key(params)
        self.endpoint = params.base_url or OPENAI
        headers = read_headers(params)
        self.secrets = tuple(secret for secret in (key, *headers.values()) if secret)
        self._params = params
        self._backoff = backoff
        self._client = openai.OpenAI(
            api_key=key or "none",  # the package requires one
            base_url=self.endpoint,
            max_retries=params.retries,
            timeout=params.timeout_seconds,
            default_headers=headers,
            http_client=openai.DefaultHttpxClient(  # as in `laurel.llm.openai_chat`
                follow_redirects=False, trust_env=by_proxy(self.endpoint)
            ),
        )

    def close(self) -> None:
        self._client.close()

    def upload(self, name: str, lines: IO[bytes]) -> str:
        """Upload requests; return the file's id. A file without a batch costs nothing.

        Raises:
            RefusedError: the server has no Batch API, or does not take the file.
        """
        with self._explained("files of requests", first=True):
            return self._client.files.create(file=(name, lines), purpose="batch", timeout=TRANSFER_SECONDS).id

    def create(self, entry: Entry, file: str) -> str:
        """Create a batch from a file of requests; return its id.

        A creation whose answer is lost may have succeeded, so the server's batches are searched before another attempt,
        and nothing is paid for twice.

        Raises:
            RefusedError: the server has no Batch API, or does not take the batch.
        """
        client = self._client.with_options(max_retries=0)
        for attempt in range(self._params.retries + 1):
            try:
                with self._explained("batches", first=True):
                    metadata = {TOKEN: entry.token}
                    return client.batches.create(
                        completion_window="24h", endpoint=PATH, input_file_id=file, metadata=metadata
                    ).id
            except UnreachableError:
                if attempt == self._params.retries:
                    raise
                time.sleep(self._backoff * 2**attempt)
                existing = self.find(entry, file)
                if existing is not None:
                    return existing
        raise AssertionError  # the last attempt returns or raises

    def find(self, entry: Entry, file: str) -> str | None:
        """Return the id of a batch that may have been created; None if it was not.

        Raises:
            RefusedError: the server does not list its batches.
        """
        with self._explained("a list of batches"):
            for batch in self._client.batches.list(limit=100):  # the latest first
                if batch.input_file_id == file or (batch.metadata or {}).get(TOKEN) == entry.token:
                    return batch.id
                if batch.created_at < entry.made_at - CLOCKS_APART:
                    return None
        return None

    def look(self, batch: str) -> Batch | None:
        """Return a batch with its status; None if the server does not know it.

        Raises:
            UnreachableError: the server does not answer.
            RefusedError: the server answers with an error.
        """
        with self._explained("the status of a batch"):
            try:
                return self._client.batches.retrieve(batch)
            except openai.NotFoundError:
                return None

    def lines(self, file: str) -> Iterator[str] | None:
        """Download a file; return its lines, or None if the server no longer has it.

        Raises:
            RefusedError: the file cannot be downloaded.
        """
        place = tempfile.TemporaryFile("w+b")  # noqa: SIM115  lives as long as its lines are read
        with self._explained("a file of answers"):
            try:
                streaming = self._client.files.with_streaming_response
                with streaming.content(file, timeout=TRANSFER_SECONDS) as response:
                    for chunk in response.iter_bytes():
                        place.write(chunk)
            except openai.NotFoundError:
                place.close()
                return None
        place.seek(0)
        return _lines(place)

    def fatal(self, refusal: retries.Refusal) -> RefusedError | None:
        """Return the error of a refusal after which no request can succeed; None for any other."""
        return retries.fatal(refusal, model=self._params.model, endpoint=self.endpoint, key=self._params.api_key_env)

    def refused(self, batch: Batch) -> RefusedError:
        """Return the error of a batch that the server did not begin."""
        problems = (batch.errors.data if batch.errors else None) or []
        problem = problems[0] if problems else None
        line = f"line {problem.line}: " if problem and problem.line is not None else ""
        reason = retries.one_line(problem.message or problem.code, self.secrets) if problem else "no reason is given"
        return RefusedError(
            f"{self.endpoint} refuses batch {batch.id}: {line}{reason.rstrip('.')}. Nothing was asked or paid "
            f'for: see annotate.openai, its model "{self._params.model}" and its other keys, or set its mode to live.'
        )

    def unknown(self, batch: str, days: float) -> RefusedError:
        """Return the error of a batch that was sent some days ago, but is not known."""
        return RefusedError(
            f"{self.endpoint} does not know batch {batch}, which was sent {days:.1f} days ago with some of these "
            f"questions: set {self._params.api_key_env} to a key of the project that sent it, or ask them again with "
            f"another annotate.language_model.responses."
        )

    @contextmanager
    def _explained(self, request: str, first: bool = False) -> Iterator[None]:
        """Convert the package's errors to a sentence.

        Args:
            first: whether an unknown path means that there is no Batch API at all.
        """
        try:
            yield
        except openai.APIStatusError as error:
            answer = error.response
            refusal = retries.Refusal.read(
                answer.status_code, answer.content, self.secrets, answer.headers.get("location")
            )
            says = f"status {refusal.status}: {refusal.message.rstrip('.')}"
            if first and refusal.status in NO_SUCH_PATH:
                raise RefusedError(
                    f"{self.endpoint} has no Batch API ({says}): set annotate.openai.mode to live."
                ) from None
            if (fatal := self.fatal(refusal)) is not None:
                raise fatal from None
            kind = UnreachableError if refusal.status in retries.AGAIN or refusal.status >= 500 else RefusedError
            raise kind(f"{self.endpoint} refuses {request} ({says}). {KEPT}") from None
        except (openai.APIConnectionError, *retries.NETWORK_ERRORS) as error:
            reason = retries.one_line(error.__cause__ or error, self.secrets)
            raise UnreachableError(f"{self.endpoint} cannot be reached for {request} ({reason}). {KEPT}") from None


KEPT = "The server continues with what was sent: run the same command again to fetch it."


def _lines(place: IO[bytes]) -> Iterator[str]:
    with place:
        for line in place:
            yield line.decode("utf-8", "replace")


Outcome = Reply | Failure | RefusedError | Again


def read_batch(
    server: BatchServer, batch: Batch, requests: Mapping[str, ChatRequest], written_in: Dialect, dialect: Dialect
) -> Iterator[tuple[str, Outcome]]:
    """Yield the outcome of each request; a RefusedError if every request would fail in the same way.

    Args:
        requests: by key; others in the batch are ignored.
        written_in: the dialect in which these requests were written.
        dialect: learns which fields the server does not accept.
    """
    missing = dict(requests)
    for file in (batch.output_file_id, batch.error_file_id):
        lines = server.lines(file) if file else iter(())
        if lines is None:
            tell(f"batch {batch.id} no longer has answers: {server.endpoint} deleted its file {file}")
        for line in lines or ():
            if read := read_line(line, missing, server.secrets):
                key, outcome = read
                request = missing.pop(key)
                if isinstance(outcome, retries.Refusal):
                    yield key, _judged(server, outcome, written_in.body(request), dialect)
                else:
                    yield key, outcome
    for key in missing:
        yield key, Again(f"batch {batch.id} was {batch.status} without an answer to it")


def _judged(server: BatchServer, refusal: retries.Refusal, body: Mapping[str, object], dialect: Dialect) -> Outcome:
    if refusal.status == 0:
        return Again(refusal.message)
    says = f"status {refusal.status}: {refusal.message}"
    if (fatal := server.fatal(refusal)) is not None:
        return fatal
    if refusal.status in retries.AGAIN or refusal.status >= 500:
        return Again(says)
    if refusal.status in (400, 422) and dialect.adapt(body, refusal.error, refusal.message):
        return Again(says, reworded=True)
    return Failure(f"refused with {says}")
