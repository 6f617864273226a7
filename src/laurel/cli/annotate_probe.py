"""`laurel annotate probe`: questions with known answers."""

from __future__ import annotations

import argparse

from laurel.cli.command import Commands, add_command, add_dry_run, add_params
from laurel.console import say


def add(actions: Commands) -> None:
    """Add the action to `laurel annotate`."""
    probing = add_command(
        actions,
        "probe",
        "Ask the annotator questions with known answers about the environment.",
        "laurel annotate probe --params params.yaml",
    )
    add_params(probing, of_parent=True)
    add_dry_run(probing)
    probing.set_defaults(run=lambda options: say(_probe(options)))


def _probe(options: argparse.Namespace) -> str:
    from laurel.data.usage import bounded, is_remark
    from laurel.envs import adapter_for
    from laurel.feedback.annotators import make_annotator
    from laurel.feedback.probe import ask, load_probe
    from laurel.llm.prices import in_full
    from laurel.params import load_params
    from laurel.seeding import derive_seed
    from laurel.stages import estimate_annotate

    params = load_params(options.params)
    if options.dry_run:
        return estimate_annotate.of_probe(params)
    probe = load_probe(params.env.id)
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    annotator = make_annotator(params.annotate, adapter, derive_seed(params.seed, "annotate"))
    findings = ask(annotator, probe)
    usage = annotator.usage
    amounts = {
        name: "unknown" if amount is None else in_full(amount) if name.endswith("cost_usd") else f"{amount:,}"
        for name, amount in usage.items()
    }
    used = ", ".join(
        f"{bounded(name, usage, amount, note=False)} {name.removesuffix('_usd').replace('_', ' ')}"
        for name, amount in amounts.items()
        if not is_remark(name)
    )
    action = " (its captions name the action; the questions do not)" if adapter.with_action else ""
    lines = [f"asked  {annotator.name}", f"about  {adapter.env_id}{action}", "", findings.table()]
    return "\n".join([*lines, *([f"used   {used}"] if used else [])]) + "\n"
