"""Pictures for the report: an agent before and after its training, an episode of every arm, paths through a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from laurel.agents.algorithms import weights_seed
from laurel.data.json_file import read_json, write_json
from laurel.data.usage import Usage, UsageNote
from laurel.envs.base import EnvAdapter
from laurel.envs.captioner import Captioner
from laurel.evaluation.animation import portrait, record, side_by_side
from laurel.evaluation.arms import ordered
from laurel.evaluation.critics import critic_figure, read_calibration
from laurel.evaluation.formats import counted
from laurel.evaluation.paths import ArmPaths, map_of, path_figure, paths_of
from laurel.evaluation.play import Asking, Evaluation, Played, load_actor, watching
from laurel.evaluation.rendering import NotRenderedError
from laurel.evaluation.report import Portrait
from laurel.evaluation.statistics import seed_scores
from laurel.params.arm_infos import ArmInfo
from laurel.pool import Job, prepare_worker, running_beside
from laurel.seeding import derive_seed
from laurel.training.engines import engine_of
from laurel.training.preload import preload

ANIMATION = "episodes.webp"
PORTRAITS = "arms"
"""Folder of the films of every arm."""
FILMS = "films.json"
"""File with the contents of the films, until it is read."""


@dataclass(frozen=True)
class Films:
    """The files of films, and what they show."""

    animation: Path | None = None
    """An agent before and after its training; None without one."""
    animation_of: str = ""
    """Its arm."""
    portraits: list[Portrait] = field(default_factory=list)
    missing: str = ""
    """Why there are no films, or none of some arms; empty if there are all, or none were requested."""
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """Usage of language models by the filmed agents and their reward, by asker."""


@contextmanager
def filming(
    evaluation: Evaluation,
    infos: Sequence[ArmInfo],
    agents: Sequence[Played],
    results: pd.DataFrame,
    folder: Path,
    note: UsageNote,
) -> Iterator[Callable[[], Films]]:
    """Film episodes in another process, while this one draws the figures.

    Args:
        folder: to write the films into.
        note: of what the filmed agents and their reward ask of language models, also where filming is stopped.

    Yields:
        A function that waits for the films and returns them.
    """
    trained = [agent for agent in agents if agent[2] is not None]
    if evaluation.evaluate.animation_steps == 0 or not trained:
        yield Films
        return
    written = folder / FILMS
    job = Job("films", _film, (evaluation, infos, agents, results, folder, note))
    with running_beside(job, preload("play", evaluation.context.env, [arm for arm, _, _ in agents])) as finish:

        def films() -> Films:
            finish()
            record, usage = read_json(written), note.read()
            written.unlink()
            if "portraits" not in record:
                return Films(missing=record["missing"], usage=usage)
            portraits = [Portrait(**{**fields, "file": folder / fields["file"]}) for fields in record["portraits"]]
            return Films(folder / ANIMATION, record["animation_of"], portraits, record["missing"], usage)

        yield films


def _film(
    evaluation: Evaluation,
    infos: Sequence[ArmInfo],
    agents: Sequence[Played],
    results: pd.DataFrame,
    folder: Path,
    note: UsageNote,
    advance: Callable[[int], None],
) -> None:
    """Film an agent before and after its training, and an episode of every arm; runs in a separate process."""
    prepare_worker()
    record: dict[str, Any] = {}
    with Asking(note) as asking:
        try:
            record["animation_of"] = _before_and_after(evaluation, agents, folder, asking)
        except NotRenderedError as error:
            record["missing"] = str(error)
        else:
            record["portraits"], record["missing"] = _portraits(evaluation, infos, agents, results, folder, asking)
    write_json(folder / FILMS, record)


def _before_and_after(evaluation: Evaluation, agents: Sequence[Played], folder: Path, asking: Asking) -> str:
    """Film one episode of an agent before and after its training; return its arm.

    Args:
        asking: gets the actors and the reward, which may ask language models.

    Raises:
        NotRenderedError: this environment cannot be shown.
    """
    evaluate, env, adapter = evaluation.evaluate, evaluation.context.env, evaluation.context.adapter
    trained = [(arm, seed, place) for arm, seed, place in agents if place is not None]
    arm, seed, place = next((agent for agent in trained if agent[0].role == "method"), trained[0])
    annotate = evaluation.context.annotate
    episode = derive_seed(evaluation.run_seed, "animation")
    before_training = engine_of(arm.agent).untrained(evaluation.run_seed, env, adapter, seed)
    captioner = Captioner(adapter)
    shown = arm if arm.role == "method" else None
    reward = watching(shown, evaluation.context, adapter, evaluation.inputs)
    actors = (
        before_training.actor_in(adapter, greedy=evaluate.greedy, annotate=annotate),
        load_actor(adapter, arm, place, greedy=evaluate.greedy, annotate=annotate),
    )
    steps = evaluate.animation_steps
    asking.add(*actors, reward=reward)
    before, after = (record(env, adapter, actor, captioner, steps, episode, reward) for actor in actors)
    side_by_side(before, after, folder / ANIMATION)
    return arm.name


def _portraits(
    evaluation: Evaluation,
    infos: Sequence[ArmInfo],
    agents: Sequence[Played],
    results: pd.DataFrame,
    folder: Path,
    asking: Asking,
) -> tuple[list[dict[str, Any]], str]:
    """Film an episode of every arm, of the seed with the median mean return; the start is the same for all.

    Args:
        asking: as `_before_and_after`.

    Returns:
        Arguments of `Portrait`, the file relative to the folder; and why an arm has none, empty if all have one.
    """
    evaluate, env, adapter = evaluation.evaluate, evaluation.context.env, evaluation.context.adapter
    episode = derive_seed(evaluation.run_seed, "animation")
    places = {(arm.name, seed): (arm, place) for arm, seed, place in agents}
    medians = _median_seeds(results)
    (folder / PORTRAITS).mkdir(exist_ok=True)  # left over from a killed run
    portraits, missing = [], ""
    for arm in (info.name for info in ordered(infos) if info.name in medians):
        seed = medians[arm]
        actor = load_actor(
            adapter,
            *places[arm, seed],
            greedy=evaluate.greedy,
            annotate=evaluation.context.annotate,
            initial=weights_seed(evaluation.run_seed, seed),
        )
        asking.add(actor)
        steps = evaluate.animation_steps
        try:
            played = record(env, adapter, actor, Captioner(adapter), steps, episode, None)
        except NotRenderedError as error:  # of a state that the agents filmed before did not reach
            missing = str(error)
            continue
        file = f"{PORTRAITS}/{arm}.webp"
        portrait(played, folder / file)
        last = played[-1]
        ended = f"{last.outcome} after {counted(last.step, 'step')}" if last.over else last.outcome
        portraits.append({"arm": arm, "seed": seed, "file": file, "outcome": f"{ended}, return {last.total:z.2f}"})
    return portraits, missing


def small_world_figures(
    evaluation: Evaluation,
    infos: Sequence[ArmInfo],
    adapter: EnvAdapter,
    agents: Sequence[Played],
    results: pd.DataFrame,
) -> tuple[dict[str, Figure], dict[str, dict[str, Any]]]:
    """Draw the figures that exist only for small grid worlds.

    Returns:
        Figures: `paths`, the greedy paths of every trained arm's median seed through a grid world, and `critics`, the
        values by language models' critics against those by dynamic programming, where known. Also, for each arm with
        paths, its entry in metrics.json.
    """
    env = evaluation.context.env.with_kwargs(evaluation.evaluate.kwargs)
    rows = None if adapter.table is None else map_of(env)  # not a small grid world
    medians, seed = _median_seeds(results), derive_seed(evaluation.run_seed, "paths")
    trained = {arm.name: (arm, place) for arm, agent_seed, place in agents if place and medians[arm.name] == agent_seed}
    walked, critics = [], {}
    for name in (info.name for info in ordered(infos) if info.name in trained):
        arm, place = trained[name]
        if calibration := read_calibration(place):
            critics[name] = calibration
        if rows is None:
            continue
        first = engine_of(arm.agent).untrained(evaluation.run_seed, env, adapter, medians[name]).as_actor(greedy=True)
        before = paths_of(env, adapter, first, seed)
        after = paths_of(env, adapter, load_actor(adapter, arm, place, greedy=True), seed)
        walked.append(ArmPaths(name, rows, before, after))
    figures = {"paths": path_figure(walked)} if walked else {}
    measured = {arm_paths.arm: {"seed": medians[arm_paths.arm], **arm_paths.measured()} for arm_paths in walked}
    return figures | ({"critics": critic_figure(critics)} if critics else {}), measured


def _median_seeds(results: pd.DataFrame) -> dict[str, int]:
    """Return for each arm the seed with the median mean return."""
    scores = seed_scores(results).sort_values(["return", "seed"])
    by_return = {str(arm): arm_scores["seed"].tolist() for arm, arm_scores in scores.groupby("arm")}
    return {arm: int(seeds[(len(seeds) - 1) // 2]) for arm, seeds in by_return.items()}
