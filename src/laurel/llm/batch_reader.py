"""What a batch that ended says about each of its requests: an answer, a failure, or that it is worth another batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from openai.types import Batch

from laurel.console import tell
from laurel.llm import retries
from laurel.llm.batch_server import BatchServer
from laurel.llm.batch_wire import Refused, Unread, read_line
from laurel.llm.chat import ChatRequest, Failure, RefusedError, Reply
from laurel.llm.chat_wire import Dialect
from laurel.params.judges import OpenAIParams


@dataclass(frozen=True, slots=True)
class Again:
    """No answer, but there may be one in another batch."""

    reason: str
    reworded: bool = False
    """Whether the request will be put another way, for the server did not take a field."""


class BatchReader:
    """Reads the files of batches.

    Args:
        params: server and model.
        server: has the files.
        dialect: learns which fields the server does not take.
    """

    def __init__(self, params: OpenAIParams, server: BatchServer, dialect: Dialect) -> None:
        self._params = params
        self._server = server
        self._dialect = dialect

    def read(
        self, batch: Batch, requests: Mapping[str, ChatRequest], dialect: Dialect
    ) -> Iterator[tuple[str, Reply | Failure | RefusedError | Again]]:
        """Yield what a batch says about each request, a RefusedError where every request would fail alike.

        Args:
            batch: has ended.
            requests: by key; others that it holds are left out.
            dialect: in which they were put.
        """
        missing = dict(requests)
        for file in (batch.output_file_id, batch.error_file_id):
            for line in self._lines(batch, file):
                read = read_line(line, missing, self._server.secrets)
                if read is not None:
                    key, outcome = read
                    yield key, self._judge(missing.pop(key), outcome, dialect)
        for key in missing:
            yield key, Again(f"batch {batch.id} was {batch.status} without an answer to it")

    def _lines(self, batch: Batch, file: str | None) -> Iterator[str]:
        """Return the lines of a batch's file; none where it has none, or no longer."""
        lines = self._server.lines(file) if file else iter(())
        if lines is None:
            tell(f"batch {batch.id} has no answers any more: {self._server.endpoint} deleted its file {file}")
        return lines or iter(())

    def _judge(
        self, request: ChatRequest, outcome: Reply | Refused | Unread, dialect: Dialect
    ) -> Reply | Failure | RefusedError | Again:
        if isinstance(outcome, Reply):
            return outcome
        if isinstance(outcome, Unread):
            return Again(outcome.reason)
        refusal = outcome.refusal
        hopeless = retries.hopeless(
            refusal, model=self._params.model, endpoint=self._server.endpoint, key=self._params.api_key_env
        )
        if hopeless is not None:
            return hopeless
        if refusal.status == 0:
            return Again(refusal.message)
        says = f"status {refusal.status}: {refusal.message}"
        if refusal.status in retries.AGAIN or refusal.status >= 500:
            return Again(says)
        if refusal.status in (400, 422) and self._dialect.adapt(dialect.body(request), refusal.error, refusal.message):
            return Again(says, reworded=True)
        return Failure(f"refused with {says}")
