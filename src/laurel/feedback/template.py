"""Prompt templates: sandboxed Jinja of blocks, slots, conditions and a few filters.

Loops, calls and variables are refused, so that rendering takes time and memory in proportion to the texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

import yaml
from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from laurel.errors import PromptError, closest
from laurel.params.file import parse_yaml

AnswerFormat = Literal["json", "choice", "text"]
LONGEST_PROMPT = 200_000
"""Maximum number of characters of a rendered block."""

_FAULTS = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that rendering a template may raise."""
_FILTERS = ("capitalize", "first", "last", "length", "lower", "title", "trim", "upper")
_NODES = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Block, nodes.If, nodes.Name, nodes.Const),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.CondExpr, nodes.Filter, nodes.Test),
    *(nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Concat, nodes.Div, nodes.Sub, nodes.Tuple, nodes.List),
)
"""Allowed nodes of a template: none of them can expand text beyond the slots."""
_NAMES: dict[type[nodes.Node], str] = {
    nodes.For: "a loop",
    nodes.Call: "a call",
    nodes.Macro: "a macro",
    nodes.Assign: "a variable assignment",
    nodes.AssignBlock: "a variable assignment",
}
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


def read_template(source: str, text: str, slots: Iterable[str]) -> tuple[dict[str, Any], Template, frozenset[str]]:
    """Read a prompt's text: front matter, template, and which slots it uses.

    Raises:
        PromptError: the text is not a prompt.
    """
    front = _FRONT_MATTER.match(text)
    if front is None:
        raise PromptError(f"{source}: does not begin with a front matter: `answer: json` between two lines of ---.")
    header = _header(source, front.group(1))
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    body = "\n" * front.group().count("\n") + text[front.end() :]  # keeps line numbers
    try:
        tree = environment.parse(body)
        _check_nodes(source, tree)  # checked before compilation, which evaluates constant expressions
        template = environment.from_string(tree)
    except TemplateSyntaxError as error:
        raise PromptError(f"{source}: line {error.lineno}: {(error.message or '').rstrip('.')}.") from None
    except RecursionError:
        raise PromptError(f"{source}: its template is nested too deeply.") from None
    except ValueError as error:
        raise PromptError(f"{source}: its template cannot be read: {error}.") from None
    used, known = meta.find_undeclared_variables(tree), tuple(slots)
    for slot in sorted(used.difference(known)):
        raise PromptError(
            f"{source}: has the slot {slot}, which is unknown.{closest(slot, known)} Slots: {', '.join(known)}."
        )
    for block in ("user", "follow_up"):
        if block not in template.blocks:
            raise PromptError(
                f"{source}: lacks the block {block}. Write {{% block {block} %}} … {{% endblock %}} around its text."
            )
    return header, template, frozenset(used)


def render(name: str, template: Template, block: str, slots: Mapping[str, str]) -> str:
    """Render a block.

    Raises:
        PromptError: it cannot be rendered, or becomes too long.
    """
    try:
        parts = list(_limited(template.blocks[block](template.new_context(dict(slots)))))
    except _FAULTS as error:
        raise PromptError(f"prompt {name}: block {block} cannot be rendered: {error}.") from None
    return "".join(parts).strip()


def _limited(parts: Iterable[str]) -> Iterator[str]:
    """Pass through the parts of a text; raise ValueError if it exceeds the maximum length of a prompt."""
    length = 0
    for part in parts:
        length += len(part)
        if length > LONGEST_PROMPT:
            raise ValueError(f"it becomes longer than {LONGEST_PROMPT:,} characters")
        yield part


def _check_nodes(source: str, tree: nodes.Template) -> None:
    """Raise PromptError for constructs that could make rendering long or slow, such as loops."""
    for node in tree.find_all(nodes.Node):
        line = f"{source}: line {node.lineno}"
        if isinstance(node, nodes.Extends | nodes.Include | nodes.Import | nodes.FromImport):
            raise PromptError(f"{source}: includes another file, but a prompt is a single file. Write its text here.")
        if isinstance(node, nodes.Filter) and node.name not in _FILTERS:
            raise PromptError(f"{line}: the filter {node.name} is not allowed. Filters: {', '.join(_FILTERS)}.")
        if not isinstance(node, _NODES):
            construct = _NAMES.get(type(node), f"the expression {type(node).__name__}")
            raise PromptError(f"{line}: {construct} is not allowed, only blocks, slots, conditions and filters are.")


_HEADER = {"description": str, "answer": str, "names_action": bool}


def _header(source: str, text: str) -> dict[str, Any]:
    """Read the front matter."""
    try:
        header = parse_yaml(text)
    except RecursionError:
        raise PromptError(f"{source}: the front matter is nested too deeply.") from None
    except yaml.YAMLError as error:
        raise PromptError(f"{source}: the front matter is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(header, dict):
        raise PromptError(f"{source}: the front matter must have keys such as `answer: json`.")
    for key, value in header.items():
        if key not in _HEADER:
            hint = closest(str(key), _HEADER)
            raise PromptError(f"{source}: {key} is unknown.{hint} Allowed in the front matter: {', '.join(_HEADER)}.")
        if not isinstance(value, _HEADER[key]):
            kind = "text" if _HEADER[key] is str else "true or false"
            raise PromptError(f"{source}: {key} is {json.dumps(value, default=str)}, but must be {kind}.")
    if header.get("answer") not in get_args(AnswerFormat):
        raise PromptError(f"{source}: answer must be one of {', '.join(get_args(AnswerFormat))}.")
    return header
