"""`laurel export hub`: a reward and its preferences as two folders for the Hugging Face hub, each with its card.

Sends nothing to the hub. The cards' facts come from manifests, quality.json and metrics.json.
"""

from __future__ import annotations

import shutil
from bisect import bisect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from laurel import __version__
from laurel.data.captions import read_vocabulary
from laurel.data.directory import output_directory
from laurel.data.json_file import read_json, write_json
from laurel.data.manifest import checked_manifest, read_manifest
from laurel.data.own_preferences import read_own
from laurel.data.preference_rows import LAYOUTS
from laurel.data.preferences import STATUSES, labels_of, set_number
from laurel.data.quality import QUALITY, figures
from laurel.data.row_files import write_file
from laurel.data.simulated import on_simulated
from laurel.envs import adapter_for
from laurel.evaluation.formats import counted
from laurel.evaluation.summary import METRICS, legend, main_arm, markdown_table, read_metrics
from laurel.params.rewards import method_of
from laurel.rewards.functions import CaptionReward
from laurel.rewards.stored import CARD, INDEX, Described, StoredRewards, described

MODEL, DATASET = "model", "dataset"
"""Folders below the output."""
README = "README.md"
ROWS = "preferences.parquet"
EXAMPLES = 5
"""Pairs and captions that cards show."""


def export_hub(reward: Path, preferences: Path, captions: Path, reports: Path, output: Path) -> dict[str, int]:
    """Write both folders atomically.

    Args:
        reward: what train-reward wrote, or one of its rewards.
        reports: output of evaluate; if it is missing, or for another reward, cards do not mention agents.
        output: directory to make or replace.

    Returns:
        The number of rows of the data set, and of pairs that were left out because neither text is better.

    Raises:
        DataError: an input is missing or damaged, or does not belong to the others.
    """
    stored = described(reward)
    checked_manifest(preferences, "annotate")  # with the labels of all judges
    labels_path = labels_of(preferences, stored.judge, set_number(stored.place))
    rows = read_own(labels_path, captions)
    kept = rows.decided()
    labels = {"manifest": read_manifest(labels_path, "annotate"), "quality": read_json(labels_path / QUALITY)}
    inputs = {"preferences": preferences, "captions": captions}
    with output_directory(output, stage="export-hub", params={"reward": stored.card()}, inputs=inputs) as out:
        model, dataset = out.path / MODEL, out.path / DATASET
        shutil.copytree(stored.place, model, ignore=shutil.ignore_patterns(".*", "set-*"))
        write_json(model / CARD, stored.card())
        results = _results(stored, reports)
        (model / README).write_text(model_card(stored, labels, results), encoding="utf-8")
        dataset.mkdir()
        write_file(kept, LAYOUTS["trl"], dataset / ROWS)
        left_out = len(rows) - len(kept)
        card = dataset_card(stored, labels, len(kept), left_out, read_vocabulary(captions).texts)
        (dataset / README).write_text(card, encoding="utf-8")
        out.counts = {"rows": len(kept), "left_out": left_out}
    return out.counts


def _results(reward: Described, reports: Path) -> Mapping[str, Any] | None:
    """Return the metrics of agents trained on this reward; None without any."""
    if not (reports / METRICS).exists():
        return None
    folder = next((parent for parent in reward.place.resolve().parents if (parent / "manifest.json").exists()), None)
    made_from = checked_manifest(reports, "evaluate")["inputs"].get("reward")
    if folder is None or checked_manifest(folder, "train-reward")["digest"] != made_from:
        return None
    return read_metrics(reports / METRICS)


def model_card(reward: Described, labels: Mapping[str, Any], results: Mapping[str, Any] | None) -> str:
    """Return the card of a reward."""
    env, method = reward.env.id, method_of(reward.settings)
    scores_captions = _scores_captions(reward)
    head = {"library_name": "laurel", "tags": ["reinforcement-learning", "reward-model", "laurel", env]}
    quality = read_json(reward.place / QUALITY) if (reward.place / QUALITY).exists() else {}
    parts = [
        _front(head),
        f"# A reward for {env}: {reward.name}",
        f"Made by Laurel {__version__}, by the method `{method.kind}` ({method.summary}). "
        + (
            "It gives a number to a caption, a sentence that says what happened in a step."
            if scores_captions
            else "It pays the steps of an episode; it gives no number to a single caption."
        ),
        "```python\nimport laurel\n\n"
        'reward = laurel.load_reward("hf://OWNER/NAME")  # this repository\n'
        "env = laurel.RewardWrapper(env, reward)  # pays it in an environment\n```",
        "## What it was learned from",
        *(
            _of_pairs(labels, quality.get("heldout_agreement"))
            if "preferences" in method.made_from(reward.place)
            else _of_method(quality)
        ),
        "## What agents learned",
        _of_agents(reward.name, results, _of_other_seeds(reward))
        if results
        else "No agents had been trained on this reward when the card was written.",
        "## Limits",
        f"It was made for {env}"
        + (
            " and only knows its captions; in another environment it pays for captions with similar words"
            * scores_captions
        )
        + ". Judge agents by the environment's own reward, beside controls.",
    ]
    return "\n\n".join(parts) + "\n"


def _of_agents(name: str, results: Mapping[str, Any], of_seeds: str) -> str:
    """Show the results of all agents, and say which of them were paid this reward.

    Args:
        name: of the reward. The headline is about the main arm, and left out if that was paid another one.
        of_seeds: a sentence on which of their seeds were.
    """
    rewards = {arm: results["arms"][arm]["rewards"] for arm in results["order"]}
    paid = [arm if len(rewards[arm]) == 1 else f"{arm} (beside another one)" for arm in rewards if name in rewards[arm]]
    headline = [f"> {' '.join(results['headline']['sentences'])}"] if name in rewards.get(main_arm(results), ()) else []
    who = f"Agents of {', '.join(paid)} were" if paid else "No agents were"
    return "\n\n".join(
        [
            f"{who} paid this reward; {'the others' if paid else 'these'} are for comparison.",
            markdown_table(results),
            legend(results) + of_seeds,
            *headline,
        ]
    )


def _of_other_seeds(reward: Described) -> str:
    """Say which agents were paid this reward, if others of its arms were paid another one of the same name."""
    folder = next(parent for parent in reward.place.resolve().parents if (parent / INDEX).exists())
    stored = StoredRewards.read(folder)
    if stored.seeds[reward.name] is not None:
        seed = reward.place.name
        return f" Of arms with the reward {reward.name}, only agents of this seed ({seed}) were paid this one."
    if (sets := stored.sets[reward.name]) > 1:
        return (
            f" Of arms with the reward {reward.name}, agents with seed s were paid that of label set s modulo {sets}; "
            f"this is the one of label set {set_number(reward.place)}."
        )
    return ""


def _scores_captions(reward: Described) -> bool:
    """Whether a reward gives a number to a single caption."""
    adapter = adapter_for(reward.env, with_action=reward.with_action)
    return isinstance(method_of(reward.settings).load(reward.place, adapter, 0.0), CaptionReward)


def _of_pairs(labels: Mapping[str, Any], agreement: float | None) -> list[str]:
    """Describe the preferences that a reward was learned from, and how well it follows those held out."""
    if agreement is None:
        return [_of_labels(labels), "Its agreement with its labels was not measured."]
    return [
        _of_labels(labels),
        f"Models trained without some of the captions agree with {agreement:.0%} of the labels of pairs with these, "
        "which says how well labels carry over to other captions, not whether the judge is right.",
    ]


def _of_method(quality: Mapping[str, Any]) -> list[str]:
    """Say that a reward was not learned from preferences, who judged instead, and whether that was simulated."""
    judge = quality.get("judge")
    origin = (
        f"**This reward is simulated: it was made by {judge}.**" if quality.get("simulated") else f"Judge: `{judge}`."
    )
    return ["It was not learned from preferences between captions.", *([origin] if judge else [])]


def size_category(n_rows: int) -> str:
    """Return the Hugging Face Hub's category for a number of rows.

    >>> size_category(999), size_category(31_000), size_category(2 * 10**6)
    ('n<1K', '10K<n<100K', '1M<n<10M')
    """
    ends = ["1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T"]
    place = bisect([1000 * 10**power for power in range(len(ends))], n_rows)
    return "n<1K" if place == 0 else "n>1T" if place == len(ends) else f"{ends[place - 1]}<n<{ends[place]}"


def dataset_card(reward: Described, labels: Mapping[str, Any], n_rows: int, left_out: int, texts: Sequence[str]) -> str:
    """Return the card of the preferences."""
    env = reward.env
    head = {
        "pretty_name": f"Preferences between captions of {env.id}",
        "tags": ["preference-data", "reinforcement-learning", "trl", "laurel"],
        "size_categories": [size_category(n_rows)],
        "configs": [{"config_name": "default", "data_files": ROWS}],
    }
    adapter = adapter_for(env, with_action=reward.with_action)
    parts = [
        _front(head),
        f"# Preferences between captions of {env.id}",
        f"{adapter.description} A caption says what happened in a step; a judge chose the better one of each pair.",
        _of_labels(labels),
        f"{counted(n_rows, 'row')} in TRL's columns (`prompt`, `chosen`, `rejected`); columns `laurel_...` say how "
        f"sure a label is, and who judged. {counted(left_out, 'pair')} without a preferred text "
        f"{'was' if left_out == 1 else 'were'} left out.",
        "## Captions",
        "\n".join(f"- {_plain(text)}" for text in texts[:EXAMPLES])
        + (f"\n\nand {len(texts) - EXAMPLES:,} more." if len(texts) > EXAMPLES else ""),
    ]
    return "\n\n".join(parts) + "\n"


def _front(head: Mapping[str, Any]) -> str:
    return f"---\n{yaml.safe_dump(dict(head), sort_keys=False)}---"


def _of_labels(labels: Mapping[str, Any]) -> str:
    """Describe the judge, the number of pairs, and the quality of the labels."""
    manifest, counts = labels["manifest"], labels["manifest"]["counts"]
    annotator = labels["quality"]["annotator"] or manifest["params"]["annotate"]["annotator"]  # none without pairs
    statuses = ", ".join(f"{counts[name]:,} {name}" for name in STATUSES if counts.get(name))
    rows = [
        f"| {figure.measure} | {figure.shown} | {figure.shown_interval} | {figure.of:,} {figure.unit} |"
        for figure in figures(labels["quality"])
    ]
    table = "| measure | value | 95% interval | of |\n|---|---:|---|---|\n" + "\n".join(rows)
    n_pairs = counts.get("pairs", 0)
    were = "was" if n_pairs == 1 else "were"
    judged = f"{counted(n_pairs, 'pair')} {were} judged by {_plain(annotator)} ({statuses})."
    return "\n\n".join(
        [judged, *(f"**{note}**" for note in on_simulated(manifest["notes"])), *([table] if rows else [])]
    )


def _plain(text: str) -> str:
    """Escape a caption for Markdown."""
    return "`" + text.replace("`", "'").replace("\n", " ") + "`"
