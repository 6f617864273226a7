"""`laurel annotate forget`: drops stored answers, so that the next run asks for them again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from laurel.cli.command import Commands, add_command, add_params
from laurel.console import aligned, printable, say
from laurel.errors import ParamsError

STATUSES = ("readable", "abstain", "unreadable", "damaged")


def add(actions: Commands) -> None:
    """Add the action to `laurel annotate`."""
    forgetting = add_command(
        actions,
        "forget",
        "List the stored answers of a status, model or prompt and their cost; with --yes, drop them, so "
        "that the next run asks, and pays, for them again.",
        "laurel annotate forget --status unreadable --model gpt-5-mini --yes",
    )
    forgetting.add_argument(
        "--status",
        choices=STATUSES,
        help="status of the answers; unreadable: the follow-up's answer, if any, is unreadable, too",
    )
    forgetting.add_argument("--model", metavar="NAME", help="the model's name on the server")
    forgetting.add_argument("--prompt", metavar="NAME", help="the prompt's name, or the beginning of its digest")
    forgetting.add_argument(
        "--store",
        type=Path,
        metavar="PATH",
        help="the store, or a folder with the stores of pipeline steps; default: the params' store",
    )
    add_params(forgetting, of_parent=True)
    forgetting.add_argument("--yes", action="store_true", help="drop the answers; without --yes nothing changes")
    forgetting.set_defaults(run=lambda options: say(_forget(options)))


def _forget(options: argparse.Namespace) -> str:
    from laurel.data.usage import UNCOUNTED, UNPRICED, Usage, bounded
    from laurel.feedback.forget import Group, Status, Wanted, forget
    from laurel.llm.prices import in_words
    from laurel.params import load_params

    assert get_args(Status) == STATUSES
    wanted = Wanted(options.status, options.model, options.prompt)
    if wanted == Wanted():
        raise ParamsError("forget: select answers with --status, --model or --prompt.")

    def amounts(group: Group) -> tuple[str, str]:
        used: Usage = {"input_tokens": group.tokens, UNCOUNTED: group.uncounted}
        used |= {"cost_usd": group.cost, UNPRICED: group.unpriced}
        words = {"input_tokens": f"{group.tokens:,}", "cost_usd": in_words(group.cost)}
        tokens, cost = (bounded(key, used, amount, note=False) for key, amount in words.items())
        return tokens, cost

    path = options.store or load_params(options.params).annotate.language_model.store
    lines: list[str] = []
    total = 0
    for file, count, groups in forget(path, wanted, really=options.yes):
        n_found = sum(group.answers for group in groups.values())
        total += n_found
        lines.append(f"{file}: {n_found:,} of {count:,} answers{' dropped' if options.yes else ''}")
        if groups:
            table = [("model", "prompt", "status", "answers", "tokens", "cost", "reason")]
            table += [
                (printable(model), printable(prompt), status, f"{group.answers:,}", *amounts(group), reason)
                for (model, prompt, status, reason), group in sorted(groups.items())
            ]
            lines += [f"  {line}" for line in aligned(table)]
    if total and not options.yes:
        lines.append("Nothing was dropped. Add --yes to drop them; the next run asks, and pays, for them again.")
    return "\n".join(lines) + "\n"
