"""Which function should reward an agent? The value is the source, or why it is invalid.

After Eureka (Ma et al. 2023, arXiv 2310.12931) and Text2Reward (Xie et al. 2023, arXiv 2309.11489). The answer's block
of code is not run, only its form is checked here; `laurel.rewards.sandbox` runs it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from laurel.envs.numbers import Numbers
from laurel.feedback.prompt import LONGEST, Form, quote
from laurel.feedback.question import Question, Reading

NAME, ARGUMENTS = "reward", ("observation", "action", "next_observation")
MOST_CHARACTERS = 6000
"""Maximum length of a function; shorter than the maximum length of a text in a prompt, so that the best one fits."""
CODE = "code"
"""The verdict for a valid function."""


class Assignment(NamedTuple):
    """The task that a function is written for."""

    observation: str
    """Description of an observation's numbers."""
    action: str
    """Description of an action."""
    best: str = ""
    """The best function so far."""
    feedback: str = ""
    """The results of the functions so far."""


class Written(NamedTuple):
    """A function, or why it is invalid."""

    source: str
    problem: str = ""


class Writer(Protocol):
    """Writes functions."""

    name: str
    simulated: bool
    remark: str
    """Remark in the plan of a run; may be empty."""

    def write(self, number: int, assignment: Assignment) -> Sequence[Reading[Written] | None]:
        """Return the functions of a round; none where they would be those of an earlier one again.

        An answer that is missing is None; one without code has no value.
        """
        ...


class CodeQuestion(Question[Assignment, Written]):
    """Asks for a function, or for a better one."""

    form: ClassVar[Form] = Form(
        "code", slots=("observation", "action"), choices=(), schema="{}", optional=("best", "feedback")
    )
    sample = Assignment("x", "y", f'"é" & {{{{ x }}}}\n\x00\u2028{"x" * LONGEST}', "z")

    def example(self, first: str, second: str) -> Assignment:
        numbers = Numbers(self.adapter)
        shown = ("def reward(observation, action, next_observation):\n    return 0.0\n", "It pays nothing.")
        return Assignment(numbers.observation, numbers.action, *shown)

    def texts(self, item: Assignment, variant: int) -> Mapping[str, str]:
        """Return the environment's texts unquoted, and the model's texts quoted."""
        slots = {"best": quote(item.best), "feedback": quote(item.feedback)}
        return {"observation": item.observation, "action": item.action, **slots}

    def content(self, item: Assignment, variant: int) -> str:
        """Return everything that the prompt shows."""
        return "".join(f"{len(part)}:{part}" for part in item)

    @classmethod
    def parse(cls, text: str, *, cut: bool = False) -> Reading[Written] | None:
        """Return the function in an answer's block of code; None if it has no block."""
        blocks, closed = _blocks(text)
        if not blocks:
            return None
        of_reward = [block for block in blocks if f"def {NAME}" in block] or blocks
        if cut or not closed:
            return _refused("cut", of_reward[-1], "the answer was cut at its limit of tokens")
        if len(set(of_reward)) > 1:
            return _refused("several", of_reward[-1], f"the answer has {len(of_reward)} blocks of code instead of one")
        return checked(of_reward[0])


def checked(source: str) -> Reading[Written]:
    """Check the form: a single function with the right name and arguments, and no imports."""
    if len(source) > MOST_CHARACTERS:
        return _refused(
            "long", source[:MOST_CHARACTERS], f"it has {len(source):,} characters, and {MOST_CHARACTERS:,} are allowed"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from parsing the code
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deeply or holds a NUL"
        return _refused("syntax", source, f"it is not valid Python: {reason}{place}")
    statements = [
        node for node in tree.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    functions = [node for node in statements if isinstance(node, ast.FunctionDef) and node.name == NAME]
    if any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree)):
        return _refused("imports", source, "it imports something, and nothing can be imported (math is there already)")
    if len(statements) != 1 or len(functions) != 1 or functions[0].decorator_list:
        return _refused("function", source, f"it is not one function {NAME}, without a decorator and nothing beside it")
    arguments = functions[0].args
    if [argument.arg for argument in arguments.args] != list(ARGUMENTS) or (
        arguments.defaults or arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs
    ):
        return _refused("arguments", source, f"its arguments are not {', '.join(ARGUMENTS)}, without defaults")
    return Reading(CODE, Written(source))


def _refused(verdict: str, source: str, problem: str) -> Reading[Written]:
    return Reading(verdict, Written(source, problem))


def _blocks(text: str) -> tuple[list[str], bool]:
    """Return the fenced blocks of a text, and whether the last one is closed."""
    blocks: list[list[str]] = []
    in_block = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("```"):
            in_block = not in_block
            if in_block:
                blocks.append([])
        elif in_block:
            blocks[-1].append(line)
    return ["".join(lines) for lines in blocks if lines], not in_block


QUESTION = CodeQuestion
