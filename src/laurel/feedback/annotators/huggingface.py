"""A chat model in this process as annotator: scores the possible answers, or generates one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from laurel.errors import AnnotationError
from laurel.feedback.annotator_kind import is_directory
from laurel.feedback.chat_annotator import ChatAnnotator
from laurel.feedback.prompt import Prompt, load_prompt
from laurel.feedback.questions.pair import load_prompt as load_pair_prompt
from laurel.llm.adapter import adapter_place, adapter_prompt
from laurel.llm.budget import Budget
from laurel.llm.chat import ChatModel, ChatRequest, Identity, RefusedError, Sampling
from laurel.llm.damage import damaged
from laurel.llm.local_model import check_installed, context_of, identity_here
from laurel.llm.responses import ResponseStore
from laurel.llm.smollm2 import NAME, PACKAGE, path_of
from laurel.params.judges import HuggingFaceParams


class HuggingFaceKind(ChatAnnotator):
    """The annotator `huggingface`."""

    Params = HuggingFaceParams
    local = True

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages for quantised weights and for adapters, and that of a packaged model."""
        quantized = ("bitsandbytes", "accelerate") if self.section.quantization != "none" else ()
        named = (PACKAGE,) if self.section.model == NAME else ()
        return (*quantized, *named, *(("peft",) if self.section.adapter else ()))

    @property
    def files(self) -> dict[str, str]:
        """The folders of the model and its adapter, and what every chat model may name."""
        model, adapter = self.section.model, self.section.adapter
        named = {"huggingface.model": model} if is_directory(model) else {}
        if adapter and adapter_place(adapter) == adapter and is_directory(adapter):
            named["huggingface.adapter"] = adapter
        return {**named, **super().files}

    def identity(self) -> tuple[Identity, bool]:
        """Return the model with the digest of its weights, if they are on this machine."""
        identity = identity_here(self.section)
        return identity or Identity(self.section.model), identity is not None

    @property
    def model_name(self) -> str:
        """The model, and the adapter that makes another judge of it."""
        tuned = f" with adapter {self.section.adapter}" if self.section.adapter else ""
        return f"{self.section.model}{tuned}"

    @property
    def title(self) -> str:
        return f"{self.params.annotator} {self.model_name}"

    def notes(self) -> list[str]:
        """Note if its adapter was tuned with another prompt than the one that it is asked with."""
        name = self.section.adapter
        tuned = adapter_prompt(name) if name else None
        asked = load_pair_prompt(self.params.language_model.prompt)
        if tuned is None or tuned[1] == asked.digest:
            return []
        version = "another version of it" if tuned[0] == asked.name else asked.label
        return [
            f'The adapter "{name}" was tuned with the prompt {tuned[0]}, but is asked with {version}, so the figures '
            f"of its model card may not hold. Set annotate.language_model.prompt to {tuned[0]}, as it was then."
        ]

    def model(self, store: ResponseStore, budget: Budget, prompt: Prompt) -> ChatModel:
        from laurel.llm.local_chat import load_local

        return load_local(self.section)

    @property
    def sampling(self) -> Sampling:
        """Its settings for generation; always the same for scores, which do not depend on them, as keys must not."""
        return super().sampling if self.section.writes else Sampling()

    def scored(self, prompt: Prompt) -> bool:
        """Whether choices are scored; the mode `score` needs a prompt with choices."""
        if self.section.mode == "generate":
            return False
        if not prompt.choices:
            raise AnnotationError(
                "annotate.huggingface.mode is score, which compares the probabilities of given answers, but the prompt "
                f"{prompt.label} asks for an answer in words. Set the mode to generate{_another(prompt)}."
            )
        return True

    def writes(self, prompt: Prompt) -> bool:
        """Whether the model generates tokens; scoring does not."""
        return not self.scored(prompt)

    def check_here(self) -> None:
        """Raise if the model, or a package that it needs, is missing here."""
        check_installed(self.section)
        super().check_here()

    def count_tokens(self, requests: Sequence[ChatRequest]) -> tuple[float, str]:
        """Count tokens with the model's tokenizer, if it is on this machine and has a chat template."""
        counts = self._lengths(requests)
        return super().count_tokens(requests) if counts is None else (sum(counts[0]), "by the model's tokenizer")

    def too_long(self, requests: Sequence[ChatRequest]) -> str | None:
        lengths, context = self._lengths(requests) or ([], 0)
        longest = max((n + (not request.choices) for n, request in zip(lengths, requests, strict=False)), default=0)
        return (
            f"the longest has {max(lengths):,} tokens, but the model takes {context:,}" if longest > context else None
        )

    def _lengths(self, requests: Sequence[ChatRequest]) -> tuple[list[int], int] | None:
        """Return the tokens of each request, and how many the model takes with its answer.

        None if its files are not on this machine, or it has no chat template, which loading the model reports.
        """
        from transformers import AutoConfig, AutoTokenizer

        place = path_of(self.section.model)
        options: dict[str, Any] = {
            "revision": self.section.revision,
            "local_files_only": True,
            "trust_remote_code": False,
        }
        try:
            tokenizer = AutoTokenizer.from_pretrained(place, **options)
            config = AutoConfig.from_pretrained(place, **options)
        except damaged(RefusedError):
            return None
        if tokenizer.chat_template is None:
            return None
        lengths = []
        for request in requests:
            turns = [{"role": message.role, "content": message.content} for message in request.messages]
            text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
            lengths.append(len(tokenizer(text, add_special_tokens=False)["input_ids"]))
        return lengths, context_of(config, tokenizer)


def _another(prompt: Prompt) -> str:
    """Return in words which prompts of the same kind of question the mode `score` can use; empty if none."""
    fit = [name for name in prompt.form.packaged if load_prompt(name, prompt.form).choices]
    setting = "annotate.language_model.prompt" if prompt.form.kind == "pair" else "that prompt"
    return f", or {setting} to {' or '.join(fit)}" if fit else ""


ANNOTATOR = HuggingFaceKind
