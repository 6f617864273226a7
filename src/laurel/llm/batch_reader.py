"""The outcome of each request of a batch that ended: an answer, a failure, or worth another batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from openai.types import Batch

from laurel.console import tell
from laurel.llm import retries
from laurel.llm.batch_server import BatchServer
from laurel.llm.batch_wire import Again, read_line
from laurel.llm.chat import ChatRequest, Failure, RefusedError, Reply
from laurel.llm.chat_wire import Dialect

Outcome = Reply | Failure | RefusedError | Again


def read_batch(
    server: BatchServer, batch: Batch, requests: Mapping[str, ChatRequest], written_in: Dialect, dialect: Dialect
) -> Iterator[tuple[str, Outcome]]:
    """Yield the outcome of each request, a RefusedError where every request would fail alike.

    Args:
        requests: by key; others that the batch holds are left out.
        written_in: the dialect in which these requests were written.
        dialect: learns which fields the server does not take.
    """
    missing = dict(requests)
    for file in (batch.output_file_id, batch.error_file_id):
        lines = server.lines(file) if file else iter(())
        if lines is None:
            tell(f"batch {batch.id} has no answers any more: {server.endpoint} deleted its file {file}")
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
