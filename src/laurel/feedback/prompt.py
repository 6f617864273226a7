"""Prompts for chat models, a template file each.

A prompt file holds a front matter in YAML (`description`, `answer`) and Jinja blocks: `system` if any, `user`, and
`follow_up`, the one question asked after an unreadable answer. The texts in question fill the slots of the kind of
question (`Form`); the environment's texts fill slots that all prompts share. Texts are inserted as JSON strings, so no
caption can close its quotes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Template

from laurel.errors import PromptError, closest
from laurel.feedback.goals import goal_in_words
from laurel.feedback.template import AnswerFormat, read_template, render
from laurel.llm.chat import Message
from laurel.textfile import UnfitFileError, read_text

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter, Example

FOLDER = Path(__file__).with_name("prompts")
SUFFIX = ".jinja"
WORDS = ("description", "goal", "anti_goal", "example")
"""Slots for the environment's texts, in every prompt."""
LONGEST = 8000
"""Maximum number of characters shown of a caption; the prompt mentions cuts."""
MOST_BYTES = 100_000
"""Largest size of a prompt's file."""
SILENCE = "(no answer)"
"""Replaces an empty answer in a conversation: many servers refuse a turn without text."""

HARD_TEXT = f'It says "é" & {{{{ x }}}}\n\x00\u2028{"x" * LONGEST}'
"""A sample text with everything that needs quoting, longer than a prompt may show."""
TEXT = {"type": "string"}
"""JSON schema of a text."""

_CONTROL = re.compile(r"<(?=[|/<]?[A-Za-z_|\uff5c])|\[(?=/?[A-Z_]{3,}\])")
"""The first character of marks such as <|im_end|>, </s>, <start_of_turn>, <<SYS>> and [INST]."""


def answer_schema(**keys: Mapping[str, Any]) -> str:
    """Return the JSON schema, as text, of an object with these keys, each with its own schema, and no others."""
    required = list(keys)
    return json.dumps({"type": "object", "properties": keys, "required": required, "additionalProperties": False})


@dataclass(frozen=True, slots=True)
class Form:
    """The slots and answer formats of the prompts of a kind of question."""

    kind: str
    """Name of the kind."""
    slots: tuple[str, ...]
    """Slots for the texts in question; block user must contain each."""
    choices: tuple[str, ...]
    """The only valid answers if the prompt has `answer: choice`."""
    schema: str
    """JSON schema of the answer, as text, if it has `answer: json`."""
    optional: tuple[str, ...] = ()
    """Slots that a prompt may leave out."""
    folder: Path | None = None
    """Folder that has the packaged prompts as NAME.jinja; None: the folder of the kind's name beside this module."""

    @property
    def place(self) -> Path:
        """The folder of packaged prompts, which are directly in it."""
        return self.folder or FOLDER / self.kind

    @property
    def packaged(self) -> Mapping[str, Path]:
        """The packaged prompts: name -> file, sorted by name."""
        return {file.stem: file for file in sorted(self.place.glob(f"*{SUFFIX}"))}

    @property
    def all_slots(self) -> tuple[str, ...]:
        """All slots that a prompt of this kind may use."""
        return (*self.slots, *self.optional, *WORDS)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, ready to be asked."""

    name: str
    form: Form
    digest: str
    """SHA-256 of the file's text: provenance of every answer."""
    description: str
    """One-line description."""
    answer: AnswerFormat
    """json: an object; choice: one of a few words and nothing else, suitable for log-probabilities; text: parsed by its
    kind of question."""
    names_action: bool
    """True if it mentions the action in a caption, so that captions must name it."""
    used: frozenset[str]
    """Slots that it uses."""
    text: str = field(repr=False, compare=False)
    """Text of the file."""
    _template: Template = field(repr=False, compare=False)

    @property
    def label(self) -> str:
        """Name under which its answers are stored: with the kind of question, except for pairs, the oldest kind."""
        return self.name if self.form.kind == "pair" else f"{self.form.kind}/{self.name}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The only valid answers; empty unless the prompt says `answer: choice`."""
        return self.form.choices if self.answer == "choice" else ()

    @property
    def schema(self) -> str | None:
        """JSON schema of the answer, as text; None unless the prompt says `answer: json`."""
        return self.form.schema if self.answer == "json" else None

    @property
    def takes_goal(self) -> bool:
        """Whether it states the goal, so that the goal can be changed."""
        return "goal" in self.used

    @property
    def takes_example(self) -> bool:
        """Whether it shows an example of two captions, which the environment must then provide."""
        return "example" in self.used

    def words(self, adapter: EnvAdapter, goal: str | None = None) -> dict[str, str]:
        """Return slot -> text of the adapter, for the slots that it uses; arguments and errors as in `messages`."""
        words = {
            "description": adapter.description,
            "goal": goal_in_words(adapter, goal),
            "anti_goal": adapter.anti_goal,
            "example": _in_words(adapter.example),
        }
        return {slot: text for slot, text in words.items() if slot in self.used}

    def messages(self, texts: Mapping[str, str], adapter: EnvAdapter, goal: str | None = None) -> tuple[Message, ...]:
        """Render a question.

        Args:
            texts: slot of the form -> its quoted text (`quote`).
            goal: one of the adapter's `goals` by name, or a goal in words; None: the adapter's own.

        Raises:
            PromptError: the prompt states no goal, or no goal has that name; or the prompt mentions actions, which the
                adapter's captions do not name, or shows an example, and the adapter has none.
        """
        if goal is not None and not self.takes_goal:
            raise PromptError(f"prompt {self.name}: it states no goal, so none can be chosen. Leave the goal out.")
        if self.names_action and not adapter.with_action:
            raise PromptError(
                f"prompt {self.name}: it mentions actions, which captions of {adapter.env_id} do not include. "
                "Set caption.with_action: true, or choose another prompt."
            )
        if self.takes_example and goal is not None:
            raise PromptError(
                f"prompt {self.name}: its example is about the goal of {adapter.env_id} itself, so no other goal can "
                "be chosen. Leave the goal out, or choose another prompt."
            )
        if self.takes_example and adapter.example is None:
            raise PromptError(
                f"prompt {self.name}: it shows an example, and {adapter.env_id} has none. Give its adapter an "
                "`example` or choose another prompt."
            )
        slots = {**texts, **self.words(adapter, goal)}
        blocks = ("system", "user") if "system" in self._template.blocks else ("user",)
        return tuple(Message(role, self.render(role, slots)) for role in blocks)  # type: ignore[arg-type]

    def follow_up(self, messages: tuple[Message, ...], answer: str) -> tuple[Message, ...]:
        """Continue a conversation whose answer could not be read."""
        shown = answer if len(answer) <= LONGEST else f"{answer[:LONGEST]} (cut)"
        replied = Message("assistant", shown if shown.strip() else SILENCE)
        return (*messages, replied, Message("user", self.render("follow_up", {})))

    def render(self, block: str, slots: Mapping[str, str]) -> str:
        """Render a block of the template; errors as in `laurel.feedback.template.render`."""
        return render(self.name, self._template, block, slots)


def load_prompt(name: str | Path, form: Form) -> Prompt:
    """Load a packaged prompt by name, or your own prompt: a path that ends in .jinja.

    Raises:
        PromptError: no prompt has that name, the file is missing, or it is not a prompt of this form.
    """
    file = Path(name)
    packaged = form.packaged
    known = ", ".join(packaged) or f"none in {form.place}"
    if file.suffix != SUFFIX:
        if str(name) not in packaged:
            raise PromptError(
                f'prompt: "{name}" is unknown.{closest(str(name), packaged)} Prompts: {known}; '
                f"or your own file, whose name ends in {SUFFIX}."
            )
        file = packaged[str(name)]
    try:
        text = read_text(file, MOST_BYTES).removeprefix("\ufeff")
    except FileNotFoundError:
        raise PromptError(f"{file}: no such file. Give a prompt's file, or one of {known}.") from None
    except UnfitFileError as error:
        raise PromptError(f"{file}: {error}") from None
    except OSError as error:
        raise PromptError(f"{file}: cannot be read ({error.strerror}).") from None
    if "\0" in text:
        raise PromptError(f"{file}: it holds a NUL character, which a prompt may not.")
    return parse_prompt(file.stem, str(file), text, form)


def as_text(quoted: str) -> str:
    r"""Escape possible control tokens of models, so that the JSON is equivalent but no tokenizer sees a control
    token.

    A server puts messages into its model's template and may tokenise all of it together, so that <|im_end|> in a
    caption would end the turn.

    >>> print(as_text('"<|im_end|> </s> [INST] x < y [1]"'))
    "\u003c|im_end|> \u003c/s> \u005bINST] x < y [1]"
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", quoted)


def quote(caption: str) -> str:
    r"""Write a caption as a JSON string of printable characters: one line, whose quotes the caption cannot close.

    >>> print(quote('Go on." \n Answer 1.'))
    "Go on.\" \n Answer 1."
    """
    shown = "".join(
        char if char.isprintable() else json.dumps(char)[1:-1]
        for char in json.dumps(caption[:LONGEST], ensure_ascii=False)
    )
    shown = as_text(shown)
    cut = f" (cut: the first {LONGEST} of {len(caption)} characters)" if len(caption) > LONGEST else ""
    return f"{shown}{cut}"


def parse_prompt(name: str, source: str, text: str, form: Form) -> Prompt:
    """Parse a prompt's text, and test its rendering; `source` is its origin, for messages.

    Raises:
        PromptError: it is not a prompt of this form.
    """
    header, template, used = read_template(source, text, form.all_slots)
    prompt = Prompt(
        name,
        form,
        hashlib.sha256(text.encode()).hexdigest(),
        header.get("description", ""),
        header["answer"],
        header.get("names_action", False),
        used,
        text,
        template,
    )
    slots = {slot: quote(f"<{slot}>") for slot in form.all_slots}
    asked = {block: prompt.render(block, slots) for block in ("system", "user") if block in template.blocks}
    for slot in form.slots:
        if slots[slot] not in asked["user"]:
            raise PromptError(f"{source}: lacks the slot {slot}: block user must hold {{{{ {slot} }}}} as it is.")
    prompt.follow_up((), "")
    return prompt


def _in_words(example: Example | None) -> str:
    """State which of two captions is better and why, without an order that could bias the model."""
    if example is None:
        return ""
    return f"{quote(example.better)} describes a better step than {quote(example.worse)}. {example.why}"
