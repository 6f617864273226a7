"""The commands `laurel prompt list` and `laurel prompt show`."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laurel.cli.command import Commands, add_command, add_group, add_input, add_params
from laurel.console import say

if TYPE_CHECKING:
    from laurel.envs.base import EnvAdapter
    from laurel.params import Params

DEFAULT = "motif"
MADE_UP = ("A desired event happens.", "Nothing happens.")
"""Captions to show where the project has none."""
WIDTH = 100


def add(commands: Commands) -> None:
    """Add the commands."""
    actions = add_group(commands, "prompt", "List and show the prompts for language models.")

    listing = add_command(actions, "list", "Print the packaged prompts.", "laurel prompt list")
    listing.set_defaults(run=lambda options: say(_list()))

    showing = add_command(
        actions,
        "show",
        "Print a prompt as a model gets it, with two captions, or with a state and the choices.",
        "laurel prompt show steered --goal key\n  laurel prompt show action/likeliest",
    )
    showing.add_argument(
        "prompt", nargs="?", default=DEFAULT, metavar="NAME", help=f"a prompt, or a .jinja file; default: {DEFAULT}"
    )
    add_input(showing, "captions")
    add_params(showing)
    showing.add_argument(
        "--goal", metavar="GOAL", help="the goal: the name of one of the environment's goals, or a text"
    )
    showing.set_defaults(run=lambda options: say(_show(options)))


def _list() -> str:
    from laurel.feedback.question import QUESTIONS

    kinds = {kind: QUESTIONS.load(kind, "question") for kind in QUESTIONS.kinds()}
    ordered = sorted(kinds.values(), key=lambda kind: kind.form.kind != "pair")  # pairs have no kind in their names
    prompts = [kind.load_prompt(name) for kind in ordered for name in kind.form.packaged]
    width = max(len(prompt.label) for prompt in prompts)
    lines = []
    for prompt in prompts:
        start = f"{prompt.label:<{width}}  {prompt.answer:<6}  {prompt.digest[:12]}  "
        lines += textwrap.wrap(prompt.description, WIDTH, initial_indent=start, subsequent_indent=" " * len(start))
    return "\n".join(lines) + "\n"


def _show(options: argparse.Namespace) -> str:
    from laurel.envs import adapter_for
    from laurel.params import load_params

    params = load_params(options.params)
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    question, item, source = _question(options, params, adapter)
    prompt, messages = question.prompt, question.messages(item)
    answer = " or ".join(prompt.choices) or (f"JSON by the schema {prompt.schema}" if prompt.schema else "text")
    lines = [
        f"prompt:   {prompt.label} ({prompt.digest[:12]})",
        f"about:    {adapter.env_id}",
        f"item:     {source}",
        f"answer:   {answer}",
    ]
    for message in messages:
        lines += ["", f"--- {message.role} ---", message.content]
    lines += ["", "--- user, once more, if the answer cannot be read ---", prompt.follow_up(messages, "")[-1].content]
    if adapter.goals:
        lines += ["", f"Goals that --goal knows: {', '.join(adapter.goals)}."]
    return "\n".join(lines) + "\n"


def _question(options: argparse.Namespace, params: Params, adapter: EnvAdapter) -> tuple[Any, Any, str]:
    """Return the question that a prompt asks, an item to ask it about, and where the item is from."""
    from laurel.agents.actors.llm_policy import action_names
    from laurel.agents.subgoals import planned_in, situation
    from laurel.feedback.question import Question, kind_of
    from laurel.feedback.questions.action import ActionQuestion
    from laurel.feedback.questions.pair import PairQuestion
    from laurel.feedback.questions.subgoal import SubgoalQuestion

    kind: type[Question[Any, Any]] = PairQuestion if options.prompt.endswith(".jinja") else kind_of(options.prompt)
    name = options.prompt if kind is PairQuestion else options.prompt.partition("/")[2]
    if issubclass(kind, ActionQuestion):
        from laurel.agents.actor import initial_observations

        (state,) = initial_observations(params.env, adapter, 1, params.seed).text
        if issubclass(kind, SubgoalQuestion):
            adapter, subgoals = planned_in(adapter)
            names, state = tuple(subgoal.text for subgoal in subgoals), situation((), state)
        else:
            names, _ = action_names(adapter, "prompt")
        loaded = kind.load_for(name, names)
        return kind(loaded, adapter, names, options.goal), state, "the beginning of an episode"
    first, second, source = _captions(options.captions, adapter)
    asked = kind(kind.load_prompt(name), adapter, options.goal)
    item = asked.example(first, second)
    if item == first:
        return asked, item, f"the first of {source}"
    return asked, item, source if {first, second} & set(item) else f"made up for {adapter.env_id}"


def _captions(path: Path, adapter: EnvAdapter) -> tuple[str, str, str]:
    """Return two captions to show a prompt with, and where they are from."""
    from laurel.data.captions import read_segments

    missing = f"{path} does not exist"
    if path.exists():
        segments = read_segments(path)
        if len(segments) > 1:
            first, second = (-segments.counts).argsort(kind="stable")[:2]
            return segments.texts[first], segments.texts[second], f"the two most frequent in {path}"
        missing = f"{path} holds fewer than two"
    texts = sorted({adapter.describe(event) for event in adapter.events()} - {""})
    if len(texts) > 1:
        best, worst = (
            max(texts, key=lambda t: adapter.oracle(t) or 0.0),
            min(texts, key=lambda t: adapter.oracle(t) or 0.0),
        )
        if best == worst:
            best, worst = texts[:2]
        return best, worst, f"two captions of {adapter.env_id}, as {missing}"
    return *MADE_UP, f"made up, as {missing}"
