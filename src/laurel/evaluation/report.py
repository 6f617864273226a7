"""The report: one HTML file that opens from disk, with everything inline: styles, figures (SVG) and the animation.

Captions and keys are data and are escaped.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from laurel.data.missing import listed
from laurel.data.preferences import STATUSES
from laurel.data.quality import figures as label_figures
from laurel.data.simulated import are_simulated
from laurel.envs.base import PROGRESSION
from laurel.evaluation.arms import arms_of
from laurel.evaluation.distances import MOST_STEPS, TRANSITIONS, Matrix, table
from laurel.evaluation.formats import counted, number, steps
from laurel.evaluation.hacking import Hacked
from laurel.evaluation.label_report import KEYS, examples, kappa, status_in_words
from laurel.evaluation.side_by_side import judges, learned_rewards, members
from laurel.evaluation.style import DARK, strokes, styles
from laurel.evaluation.summary import (
    asked_columns,
    columns,
    comparison_columns,
    further_columns,
    kinds_of_further,
    legend,
    main_arm,
    path_columns,
    text_columns,
)
from laurel.evaluation.verdict import Headline, headline
from laurel.evaluation.words import flat, in_words, instead_of_captions, key_in_words, rank_warning
from laurel.rewards.method import Program
from laurel.training.credit import THIRDS

SHOWN = 10
"""Captions listed from either end of the vocabulary."""

_FIGURES = {
    "success_curve": "Success rate of each arm over environment steps.",
    "return_curve": "Return of each arm over environment steps.",
    "success_curve_log": "Success rate of each arm over environment steps, on a logarithmic axis.",
    "return_curve_log": "Return of each arm over environment steps, on a logarithmic axis.",
    "arms": "Every seed of each arm as a dot, their mean and its 95% interval.",
    "calibration": "Mean held-out label against predicted probability of preference.",
    "label_calibration": "Accuracy of labels against their confidence: the calibration.",
    "divergence": "Pay and return of each arm over its divergence from the frozen language model.",
    "critics": "Critics' estimates of states against their values by dynamic programming, a panel for each arm.",
    "paths": "Paths through the grid from the same starts, of each arm before and after its training.",
    "reward_vs_return": "Learned reward against true return, a panel for each arm.",
}
"""Figures of the report, with their alternative text."""


@dataclass(frozen=True)
class Portrait:
    """An example episode of an arm."""

    arm: str
    seed: int
    file: Path
    """WebP."""
    outcome: str
    """How it ended, in words."""


@dataclass(frozen=True)
class ReportContent:
    """The content of the report; parts that are None or empty are left out."""

    title: str
    """The environment's id."""
    metrics: Mapping[str, Any]
    """Holds `order`, `arms` and `comparisons`, as `statistics.summarise` gives them."""
    description: str = ""
    """The task in a sentence or two."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Name of an input -> its digest."""
    provenance: Sequence[str] = ()
    """By what version, from which commit and on what machine the report was made, in a few words each."""
    figures: Mapping[str, str] = field(default_factory=dict)
    """Name -> figure of `plots.draw` as SVG."""
    notes: Sequence[str] = ()
    """Sentences about what was skipped, degraded or simulated; shown near the top."""
    animation: Path | None = None
    """WebP of an episode before and after training."""
    programs: Mapping[str, Program] = field(default_factory=dict)
    """Rewards that are code, by name."""
    hacked: Sequence[Hacked] = ()
    """Arms flagged for reward hacking."""
    written: Sequence[tuple[str, Sequence[tuple[str, str, float]]]] = ()
    """Prompts, with what each arm that trained a language model wrote to them, and its return."""
    portraits: Sequence[Portrait] = ()
    """An episode of each arm."""
    animation_of: str = ""
    """The arm that the animation shows after training."""
    vocabulary: pd.DataFrame | None = None
    """One row per caption: id, text, reward, spread, count (0: listed, never met)."""
    threshold: float | None = None
    """Reward above which a caption is paid for."""
    normalised: bool = True
    """Whether these rewards are normalised."""
    pays_for: str = "caption"
    """Name of the texts with these rewards: caption or outcome."""
    learned_by: str = ""
    """The agent that learned these rewards during its training, in words; empty if they were made beforehand."""
    scored_by: str = ""
    """Whose reward scores all episodes, such as "label set 0"; empty if its arm's agents are paid the same."""
    rank: Mapping[str, Any] | None = None
    """How the learned reward ranks episodes, as `statistics.rank_agreement` gives it."""
    annotation: Mapping[str, Any] | None = None
    """What the annotator did: annotator, pairs, a count for each status, and the figures of quality.json; any other
    keys are shown too."""
    label_sets_used: int = 1
    """How many of a judge's label sets agents learn from; of several judges the one with the fewest."""
    sample: Sequence[Mapping[str, Any]] = ()
    """Labelled pairs with their raw answers, as `laurel.data.sample.read_sample` gives them."""
    reward: Mapping[str, Any] | None = None
    """Quality of the reward model: heldout_agreement, heldout_loss, baselines; any other keys are shown too."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The whole of params.yaml."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Package -> version."""


def render(content: ReportContent) -> str:
    """Return the report as one HTML document."""
    arms = content.metrics["arms"]
    substitute = instead_of_captions(content.rank)
    if content.vocabulary is None and content.rank and content.rank["tau"] is None:
        # a reward that is equal in every episode, as novelty may be, ranks nothing
        reward = {key: value for key, value in (content.reward or {}).items() if key != "kendall_tau_vs_return"}
        content = replace(content, rank=None, reward=reward)
    environment = Environment(
        loader=PackageLoader("laurel.evaluation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, steps=steps, words=key_in_words, status=status_in_words)
    heads, rows = columns(content.metrics)
    infos = arms_of(content.metrics)
    places = {info.name: place for place, info in enumerate(infos)}
    main = main_arm(content.metrics)
    return environment.get_template("report.html.j2").render(
        content=content,
        headline=_in_words(headline(content.metrics), arms),
        facts=_facts(arms, content.metrics.get("algorithm")),
        notes=[*content.notes, *_own_notes(content)],
        figures={name: inline(name, text, places) for name, text in content.figures.items() if name in _FIGURES},
        places=places,
        dark={color[1:]: replacement for color, replacement in DARK.items()},
        portraits=[(portrait, _data_uri(portrait.file)) for portrait in content.portraits],
        roles={info.name: f"{info.role}: {info.label}" for info in infos},
        heads=heads,
        compared=comparison_columns(content.metrics),
        rows=rows,
        colors={arm: look.color for arm, look in styles(infos).items()},
        main=main,
        strokes=strokes(infos),
        legend=legend(content.metrics),
        extrinsic=content.params.get("shaping", {}).get("extrinsic"),
        has_success=any(arm["success"] for arm in arms.values()),
        animation=_data_uri(content.animation) if content.animation else None,
        captions=_captions(content.vocabulary),
        instead_of_captions=substitute,
        warning=rank_warning(content.rank),
        thirds=THIRDS,
        models=text_columns(content.metrics),
        distance_steps=MOST_STEPS,
        epic_steps=TRANSITIONS,
        distances=_distances(content.metrics.get("distances", {})),
        online=_annotated_online(content.metrics.get("online", {})),
        further=further_columns(content.metrics),
        kinds_of_further=kinds_of_further(content.metrics),
        progression=PROGRESSION in content.metrics.get("further", {}),
        paths=path_columns(content.metrics),
        asked=asked_columns(content.metrics),
        rank_arms=[arm for arm in places if arm in content.rank["arms"]] if content.rank else [],
        status=_status(content.annotation),
        simulated=are_simulated(content.notes, (content.annotation or {}).get("annotator")),
        who=str((content.annotation or {}).get("annotator", "")),
        annotation=[*_in_pairs(content.annotation or {}, (*STATUSES, *KEYS)), *kappa(content.annotation or {})],
        quality=label_figures(content.annotation or {}),
        members=members(content.annotation or {}),
        label_sets=int((content.annotation or {}).get("label_sets", 1)),
        judges=judges(content.annotation or {}),
        missing=sorted(listed((content.annotation or {}).get("missing", ())), key=lambda item: -item.answers),
        examples=examples(content.sample),
        reward=_in_pairs(content.reward or {}, ("calibration", "baselines", "heldout_agreement", "by", "of")),
        agreement=_heldout_agreement(content.reward),
        learned=learned_rewards(content.reward or {}),
        params=yaml.safe_dump(dict(content.params), sort_keys=False, allow_unicode=True) if content.params else "",
    )


def _in_words(headline: Headline, arms: Iterable[str]) -> Headline:
    """Return the headline with arms named in words."""
    sentences = headline.sentences
    for arm in sorted(arms, key=len, reverse=True):  # a name may hold another
        sentences = tuple(sentence.replace(arm, key_in_words(arm)) for sentence in sentences)
    return replace(headline, sentences=sentences)


def _facts(arms: Mapping[str, Mapping[str, Any]], algorithm: str | None) -> list[str]:
    """Return the facts of the run, each in a few words."""
    seeds = sorted({len(arm["seeds"]) for arm in arms.values()})
    trained = sorted({arm["env_steps"] for arm in arms.values() if arm["env_steps"]})
    episodes = sum(arm["episodes"] for arm in arms.values())
    return [
        counted(len(arms), "arm"),
        counted(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds",
        *([f"trained by {algorithm}"] if algorithm else []),
        *([" to ".join(steps(n) for n in {trained[0]: 0, trained[-1]: 0}) + " training steps each"] if trained else []),
        counted(episodes, "evaluation episode"),
    ]


def _own_notes(content: ReportContent) -> list[str]:
    """Return notes derived from the figures."""
    notes = []
    single = [arm for arm, entry in content.metrics["arms"].items() if len(entry["seeds"]) == 1]
    if single:
        subject = "Every arm" if len(single) == len(content.metrics["arms"]) else ", ".join(single)
        notes.append(f"{subject} has a single seed: no interval can be given, and a difference may be luck.")
    warning = rank_warning(content.rank)
    if warning:
        notes.append(warning)
    return notes


def _distances(matrices: Mapping[str, Matrix]) -> dict[str, list[tuple[str, list[tuple[str, str | None]]]]]:
    """Return the tables of distances: for each reward the distances in words, and of rankings the share that ties."""
    tied = {"rank": dict(table(matrices.get("tied", {})))}  # empty in reports of earlier versions
    tables = {name: table(matrices[name]) for name in ("epic", "rank") if matrices.get(name)}
    return {
        name: [
            (
                reward,
                [(number(value), None if tie is None else f"{tie:.0%}") for value, tie in zip_longest(values, ties)],
            )
            for reward, values in rows
            for ties in [tied.get(name, {}).get(reward, [])]
        ]
        for name, rows in tables.items()
    }


def _annotated_online(
    accounts: Mapping[str, Mapping[str, Any]],
) -> tuple[Sequence[str], Sequence[Sequence[str]]] | None:
    """Return the heads and rows of a table of rewards that were learned while agents were trained."""
    if not accounts:
        return None
    heads = (
        "arm",
        "questions",
        "labels",
        "distinct labels, all agents",
        "read",
        "coverage",
        "lag in steps",
        "dropped",
        "late agents",
    )

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.0%}"

    rows = [
        [
            name,
            *(number(account["questions"]), number(account["labels"]), str(account["distinct_labels"])),
            *(share(account.get("parse_rate")), share(account["coverage"])),
            *(number(account["lag"]), number(account["dropped"]), str(account["late_agents"])),
        ]
        for name, account in accounts.items()
    ]
    return heads, rows


# -- tables ---------------------------------------------------------------------------------------
def _captions(vocabulary: pd.DataFrame | None) -> dict[str, Any] | None:
    """Return the captions with the highest and the lowest reward, sorted; each caption once."""
    if vocabulary is None or vocabulary.empty:
        return None
    ordered = vocabulary.sort_values(["reward", "text"], ascending=[False, True], kind="stable")
    rows = [
        {"text": str(text), "reward": float(reward), "spread": float(spread), "count": int(count)}
        for text, reward, spread, count in zip(
            ordered["text"], ordered["reward"], ordered["spread"], ordered["count"], strict=True
        )
    ]
    upper = min(SHOWN, -(-len(rows) // 2))
    return {
        "total": len(rows),
        "unmet": sum(row["count"] == 0 for row in rows) if ordered["count"].any() else 0,
        "counted": bool(ordered["count"].any()),  # the labels of an online judge have no counts
        "spread": bool(ordered["spread"].any()),  # only ensembles have one
        "highest": rows[:upper],
        "lowest": rows[max(upper, len(rows) - SHOWN) :],
    }


def _in_pairs(mapping: Mapping[str, Any], leave_out: Sequence[str]) -> list[tuple[str, str]]:
    return [(key, in_words(value)) for key, value in flat(mapping, leave_out)]


def _status(annotation: Mapping[str, Any] | None) -> list[tuple[str, int, float]]:
    """Return status in words, count and share of all pairs."""
    counts = {name: int(annotation[name]) for name in STATUSES if name in annotation} if annotation else {}
    total = sum(counts.values()) or 1
    return [(status_in_words(name), count, count / total) for name, count in counts.items()]


def _heldout_agreement(reward: Mapping[str, Any] | None) -> list[tuple[str, float, bool]]:
    """Return how often the model and each baseline agree with held-out labels, the best first."""
    if not reward:
        return []
    baselines: Mapping[str, float | None] = reward.get("baselines") or {}
    rows = [(key_in_words(name), float(value), False) for name, value in baselines.items() if value is not None]
    if reward.get("heldout_agreement") is not None:
        rows.append(("reward model", float(reward["heldout_agreement"]), True))
    return sorted(rows, key=lambda row: (-row[1], not row[2]))


# -- pictures -------------------------------------------------------------------------------------
def inline(name: str, text: str, places: Mapping[str, int]) -> Markup:
    """Return the SVG of a figure so that it scales with the page, and takes its colours from it.

    Ids are made unique within the page. Parts of an arm get classes, by which the page finds them: `a` and the arm's
    place, and what part it is.
    """
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    opening, rest = text.split(">", 1)
    opening = re.sub(r' (width|height)="[^"]*"', "", opening)
    text = f'{opening} role="img" aria-label="{_FIGURES[name]}">{rest}'
    text = re.sub(r'\bid="arm:\S+ dots ([^"]*)">(.*?</g>)', _titled, text, flags=re.DOTALL)
    text = re.sub(r'\bid="scale ([^"]*)"', r'data-scale="\1"', text)
    text = re.sub(r'\bid="arm:(\S+) ([a-z ]+)"', lambda m: f'class="of-arm a{places.get(m[1], "")} {m[2]}"', text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'((?:xlink:)?href="|url\()#', rf"\g<1>#{name}-", text)
    text = re.sub(r'(?<=style=")[^"]*', lambda m: _COLOUR.sub(r"var(--c-\1, #\1)", m[0]), text)
    return Markup(text)  # noqa: S704 - matplotlib escapes what it writes into SVG


def _titled(match: re.Match[str]) -> str:
    """Give each dot of an arm a title that says its seed and value, which browsers show where one points at it."""
    titles = iter(match[1].split())
    return 'class="dots">' + re.sub(
        r"(<use [^>]*)/>",
        lambda dot: "{}><title>seed {}: {}</title></use>".format(dot[1], *next(titles).split("=")),
        match[2],
    )


_COLOUR = re.compile(r"(?<=: )#([0-9a-f]{6})\b")


def _data_uri(path: Path) -> str:
    kind = {".gif": "gif", ".webp": "webp", ".png": "png"}[path.suffix]
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
