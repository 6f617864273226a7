"""A chat model behind an OpenAI-compatible API as annotator, asked live or in batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from laurel.console import tell
from laurel.extras import need
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.prompt import Prompt
from laurel.llm.batch_ledger import BatchLedger
from laurel.llm.budget import Budget
from laurel.llm.chat import ChatModel, Identity, Sampling
from laurel.llm.responses import ResponseStore
from laurel.params.judges import OPENAI, OpenAIParams


class OpenAIKind(ChatAnnotator):
    """The annotator `openai`."""

    Params = OpenAIParams
    can_batch = True

    def check_here(self) -> None:
        """Raise if the client is not installed here."""
        super().check_here()
        need("openai")

    def missing_here(self) -> str | None:
        """Report a key that is missing, or must not be sent to this server, and a price as other chat models do."""
        from laurel.llm.chat import RefusedError
        from laurel.llm.openai_chat import read_key

        notes = [super().missing_here()]
        try:
            read_key(self.section)
        except RefusedError as error:
            notes.insert(0, str(error))
        return " ".join(filter(None, notes)) or None

    @property
    def packages(self) -> tuple[str, ...]:
        """The package that serves the model, if it is served here."""
        return ("vllm",) if self.section.serve else ()

    @property
    def in_batches(self) -> bool:
        return bool(self.section.mode == "batch")

    @property
    def sampling(self) -> Sampling:
        extra = json.dumps(self.section.extra_body, sort_keys=True) if self.section.extra_body else ""
        return replace(super().sampling, reasoning_effort=self.section.reasoning_effort, extra_body=extra)

    def identity(self) -> tuple[Identity, bool]:
        """Return the model and its address; the store may hold its answers."""
        return Identity(self.section.model, endpoint=self.section.base_url or OPENAI), True

    def model(self, store: ResponseStore, budget: Budget, prompt: Prompt) -> ChatModel:
        """Return a client; warns if questions that are now asked live are also pending in batches."""
        if self.in_batches:
            from laurel.llm.openai_batch import OpenAIBatch

            return OpenAIBatch(self.section, store, budget.seconds_left)
        from laurel.llm.openai_chat import OpenAIChat

        identity, _ = self.identity()
        model = OpenAIChat(self.section, takes_them=store.has_answers(identity, prompt.digest, self.sampling))
        ledger = BatchLedger(store.path)
        if waiting := ledger.waiting(model.identity.endpoint, model.identity.model):
            tell(
                f"{waiting:,} question{'s' * (waiting != 1)} to {model.identity.model} "
                f"{'is' if waiting == 1 else 'are'} in batches that were sent before. Those of them that are asked "
                "now are paid for twice; set annotate.openai.mode to batch to fetch their answers instead."
            )
        ledger.close()
        if self.section.serve:
            from laurel.llm.served import ServedChat

            return ServedChat(self.section, model)
        return model

    def sent(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Return which questions are in batches that were sent before."""
        path = self.params.language_model.store
        if not path.exists():
            return {}
        ledger = BatchLedger(path, read_only=True)
        try:
            return ledger.find(keys)
        finally:
            ledger.close()

    def paces(self, calls: int, tokens: float) -> tuple[dict[str, float], int]:
        """Return the minutes that these calls take under the limits of the params, and how many calls go at once."""
        paces = {}
        if self.section.requests_per_minute:
            paces["requests_per_minute"] = calls / self.section.requests_per_minute
        if self.section.tokens_per_minute:
            paces["tokens_per_minute"] = tokens / self.section.tokens_per_minute
        return paces, self.section.max_in_flight


ANNOTATOR = OpenAIKind
