"""tune-judge: questions with known answers → LoRA weights that turn a small chat model into your own judge.

Whole environments are held out: the judge's accuracy there measures its generalisation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from laurel.console import tell
from laurel.data.directory import Output, output_directory
from laurel.data.gold import GoldFile, Task
from laurel.data.json_file import write_json
from laurel.data.lineage import read_inputs
from laurel.data.own_preferences import read_own
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError, DataError, ParamsError
from laurel.feedback.known_answers import KnownPair, Subject, by_gold, by_judge, by_progress, drawing, right
from laurel.feedback.probe import has_probe, load_probe
from laurel.feedback.prompt import Prompt
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.feedback.ranked_texts import by_rank, load_ranked
from laurel.feedback.references import task_of
from laurel.llm.adapter import QUALITY
from laurel.llm.chat import ChatRequest, Reply
from laurel.llm.judge_tuning import Labels, Tuning
from laurel.llm.local_chat import LocalChat
from laurel.llm.local_model import LocalModel, load_model, weights_digest
from laurel.llm.local_tuning import CHECKPOINT, Item, settings_of, tune
from laurel.params import EnvParams, Params
from laurel.params.annotation import AnnotateParams
from laurel.params.judges import HuggingFaceParams
from laurel.progress import progress
from laurel.seeding import derive_seed
from laurel.tracking.tracker import Tracker, flatten

STAGE = "tune-judge"
CARD = "README.md"
GUESSING = math.log(2)
"""Cross-entropy of a judge that assigns 1/2 to both texts."""


def run(params: Params, labels: Labels, output: Path, *, prompt: str, tuning: Tuning, model: str | None = None) -> str:
    """Tune a model, and return a summary as text.

    Args:
        params: sections seed, env, caption, annotate and tracking are used.
        labels: training and test data.
        output: directory to write the adapter, QUALITY and a model card.
        prompt: of the questions, which must have choices; the judge must later be asked with the same prompt.
        model: as in annotate.huggingface; None: the one of the params.

    Raises:
        AnnotationError: the model cannot be loaded or tuned, or there is nothing to learn from.
        ParamsError: an environment, or another one in the same words, is both trained on and held out; or the model
            already has an adapter.
        DataError: a file cannot be read, or the output cannot be written.
    """
    settings = params.annotate.huggingface
    settings = settings if model is None else settings.model_copy(update={"model": model, "adapter": None})
    _check(settings, labels)
    question = _prompt(prompt)
    adapter = adapter_for(params.env, with_action=params.caption.with_action)
    goal = _goal(params, labels, adapter)
    tasks = () if labels.ranked is None else load_ranked(labels.ranked)
    used = {**params.used("seed", "env", "caption"), **_recorded(settings.model, labels, question, tuning)}
    used |= {} if goal is None else {"goal": goal}
    inputs = {
        name: path
        for name, path in (
            ("preferences", labels.preferences),
            ("captions", labels.captions),
            ("gold", labels.gold),
            ("ranked_texts", labels.ranked),
        )
        if path is not None
    }
    with output_directory(output, stage=STAGE, params=used, inputs=inputs, resumable=True) as out:
        learned, tests = _subjects(params, labels, adapter, goal)
        ranked = [by_rank(task, labels.ranked_pairs, params.seed) for task in tasks]
        counts: Counter[str] = Counter()
        for subject in learned:
            counts[subject.adapter.env_id] += len(subject.pairs)
        local = load_model(settings)
        losses = _tune(local, [*learned, *ranked], question, tuning, params.seed, out)
        quality = {
            "base": {"model": settings.model, "weights": weights_digest(settings), "dtype": str(local.model.dtype)},
            "prompt": {"name": question.name, "digest": question.digest},
            "learned": dict(counts),
            "ranked_texts": {"tasks": len(ranked), "pairs": sum(len(task.pairs) for task in ranked)},
            "labels": _source(labels),
            "loss": losses,
            **_tested(local, tests, question),
        }
        write_json(out.path / QUALITY, quality)
        card = _card(settings.model, quality, tuning)
        (out.path / CARD).write_text(card, encoding="utf-8")
        out.counts = {"pairs": _pairs(quality)}
        (out.path / CHECKPOINT).unlink()
        sections = {**used, "env": params.env, "tracking": params.tracking}
        stages = {name: path for name, path in inputs.items() if name in ("preferences", "captions")}
        with Tracker(sections, STAGE, stages, out).stage_run() as tracked:
            if tracked:
                figures = flatten({"held_out": quality["held_out"], "mean_accuracy": quality["mean_accuracy"]})
                tracked.log_metrics({name: value for name, value in figures.items() if isinstance(value, int | float)})
                tracked.log_curve((number, {"loss": loss}) for number, loss in enumerate(losses, start=1))
                tags = {"base": settings.model, "prompt": question.name, "labels": _source(labels)}
                source = tracked.log_model(out.path, "judge", tags)
                if params.tracking.register_models:
                    tracked.register("judge", source, tags)
    return card


def _check(settings: HuggingFaceParams, labels: Labels) -> None:
    for key, named in (("--env", labels.environments), ("--held-out", labels.held_out)):
        if repeated := [env for env, times in Counter(named).items() if times > 1]:
            raise ParamsError(f"{key}: names {repeated[0]} twice; name each environment once.")
    if shared := set(labels.environments) & set(labels.held_out):
        raise ParamsError(f"{sorted(shared)[0]} is both trained on and held out: leave it out of one of them.")
    if settings.adapter is not None:
        raise ParamsError(
            "annotate.huggingface.adapter: tuning starts from a model without an adapter. Set it to null."
        )
    if labels.preferences is not None and labels.gold is not None:
        raise ParamsError("Labels come from --gold (a person) or --preferences (another judge): give one of the two.")


def _recorded(model: str, labels: Labels, prompt: Prompt, tuning: Tuning) -> dict[str, Any]:
    return {
        "model": model,
        "environments": list(labels.environments),
        "held_out": list(labels.held_out),
        "pairs": labels.pairs,
        **({} if labels.ranked is None else {"ranked_pairs": labels.ranked_pairs}),
        "test_pairs": labels.test_pairs,
        "prompt": prompt.digest,
        "tuning": settings_of(tuning),
    }


def _prompt(name: str) -> Prompt:
    prompt = load_prompt(name)
    if not prompt.choices:
        raise AnnotationError(
            f"prompt {prompt.name}: it asks for free text, but tuning needs fixed choices. Use concise."
        )
    return prompt


def _subjects(
    params: Params, labels: Labels, adapter: EnvAdapter, goal: str | None
) -> tuple[list[Subject], list[Subject]]:
    """Return the pairs to train on, and those to test with.

    Args:
        own: the adapter of the params' environment.
        goal: in words, which gold labels or another judge's are for; None: there are none.
    """

    def adapter_of(env_id: str) -> EnvAdapter:
        return adapter_for(EnvParams(id=env_id))

    tests = [
        by_progress(adapter_of(env), labels.test_pairs, derive_seed(params.seed, "test")) for env in labels.held_out
    ]
    learned = [by_progress(adapter_of(env), labels.pairs, params.seed) for env in labels.environments]
    if labels.gold is not None and goal is not None:
        gold = GoldFile(labels.gold, Task(adapter.env_id, goal))
        learned.append(by_gold(adapter, gold, labels.pairs, drawing(params.seed, adapter)))
    if labels.preferences is not None and labels.captions is not None and goal is not None:
        rows = read_own(labels.preferences, labels.captions)
        learned.append(by_judge(adapter, rows, goal, labels.pairs, params.seed))
    for subject in learned:
        if subject.left_out:
            used, total = len(subject.pairs), len(subject.pairs) + subject.left_out
            tell(f"{subject.adapter.env_id}: learns from {used:,} of {total:,} labels; --pairs {total} takes all.")
    if not learned and labels.ranked is None:
        raise ParamsError(
            "There is no training data: name environments (--env), or give --gold, --preferences or --ranked-texts."
        )
    for test in tests:
        for known in learned:
            _check_new(test, known)
    return learned, tests


def _goal(params: Params, labels: Labels, adapter: EnvAdapter) -> str | None:
    """Return the goal in words that gold labels or another judge's are for; None if there are none of these.

    Imported labels do not tell their goal, so they are for that of the params.

    Raises:
        DataError: the labels are missing, or of another environment.
    """
    if labels.gold is not None:
        if not labels.gold.exists():
            raise DataError(
                f"{labels.gold}: no such file. Label some pairs with `laurel annotate review`, or leave out --gold."
            )
        return task_of(params.annotate, adapter).goal
    if labels.preferences is None or labels.captions is None:
        return None
    inputs = {"captions": labels.captions, "preferences": labels.preferences}
    origin = read_inputs(params.used("env", "caption"), inputs)["preferences"]["params"]
    asked = AnnotateParams.model_validate(origin["annotate"]) if "annotate" in origin else params.annotate
    return task_of(asked, adapter).goal


def _check_new(test: Subject, learned: Subject) -> None:
    """Refuse to test with what a judge was trained on: the same environment, or one in the same words.

    Raises:
        ParamsError: it is.
    """
    held_out, known = test.adapter, learned.adapter
    if held_out.env_id == known.env_id:
        raise ParamsError(f"{known.env_id} is both trained on and held out: leave it out of one of them.")
    same_task = (held_out.description, held_out.goal) == (known.description, learned.goal or known.goal)
    if same_task and _texts(test) & _texts(learned):
        raise ParamsError(
            f"{held_out.env_id} is held out, but asks the questions of {known.env_id}, which is trained on: both have "
            "the same description, goal and captions. Hold out another task."
        )


def _texts(subject: Subject) -> set[str]:
    return {text for pair in subject.questions for text in (pair.first, pair.second)}


def _source(labels: Labels) -> str:
    sources = ["environments' hand-written progress"] if labels.environments else []
    sources += ["a person's labels"] if labels.gold is not None else []
    sources += ["another judge's labels"] if labels.preferences is not None else []
    sources += ["texts ranked by hand"] if labels.ranked is not None else []
    return " and ".join(sources)


def _pairs(quality: Mapping[str, Any]) -> int:
    """Return the number of training pairs."""
    return sum(quality["learned"].values()) + int(quality["ranked_texts"]["pairs"])


def _tune(
    local: LocalModel, learned: Sequence[Subject], prompt: Prompt, tuning: Tuning, seed: int, out: Output
) -> list[float]:
    items = []
    for subject in learned:
        question = PairQuestion(prompt, subject.adapter, subject.goal)
        for pair, p_first in subject.pairs:
            requests = tuple(ChatRequest(question.messages(pair, order), choices=question.choices) for order in (0, 1))
            items.append(Item(subject.adapter.env_id, requests, (p_first, 1 - p_first)))
    with progress(len(items) * tuning.passes, STAGE, "pairs") as advance:
        return tune(local, items, tuning, seed, out.path, advance)


def _tested(local: LocalModel, tests: Sequence[Subject], prompt: Prompt) -> dict[str, Any]:
    """Return the judge's results on pairs of held-out environments, and on their questions with known answers."""
    by_env: dict[str, Any] = {}
    for subject in tests:
        env_id = subject.adapter.env_id
        by_env[env_id] = right(subject, _first_probabilities(local, subject, prompt))
        if has_probe(env_id):
            probe = load_probe(env_id)
            known = [
                KnownPair(pair, float(side == "first"))
                for pair, side in zip(probe.questions, probe.expected, strict=True)
            ]
            of_probe = Subject(subject.adapter, tuple(known))
            by_env[env_id]["probe"] = right(of_probe, _first_probabilities(local, of_probe, prompt))["accuracy"]
    shares = [figures["accuracy"]["value"] for figures in by_env.values()]
    return {"held_out": by_env, "mean_accuracy": sum(shares) / len(shares) if shares else None}


def _first_probabilities(local: LocalModel, subject: Subject, prompt: Prompt) -> list[tuple[float, float]]:
    """Return the probability of the text shown first, for each pair in both orders."""
    question = PairQuestion(prompt, subject.adapter, subject.goal)
    requests = [
        ChatRequest(question.messages(pair, order), choices=question.choices)
        for pair, _ in subject.pairs
        for order in (0, 1)
    ]
    replies = dict(LocalChat(local, batch_tokens=8192).ask(requests))
    p = [0.5] * len(requests)
    for number, reply in replies.items():
        if isinstance(reply, Reply) and reply.logprobs is not None:
            p[number] = math.exp(reply.logprobs[question.choices[0]])
    return list(zip(p[::2], p[1::2], strict=True))


def _card(model: str, quality: Mapping[str, Any], tuning: Tuning) -> str:
    """Return the model card."""
    learned = [f"{env} ({n})" for env, n in quality["learned"].items()]
    passes, span = ("1 pass", "this pass") if tuning.passes == 1 else (f"{tuning.passes} passes", "these passes")
    if tasks := quality["ranked_texts"]["tasks"]:
        learned.append(f"{tasks} task{'s' * (tasks != 1)} in words ({quality['ranked_texts']['pairs']})")
    lines = [
        "---",
        "library_name: peft",
        f"base_model: {model}",
        "---",
        f"# A judge of steps: LoRA weights for {model}",
        "",
        "It judges which of two short texts describes the better step towards a goal. Use it in Laurel with",
        f"`annotate: {{annotator: huggingface, huggingface: {{model: {model}, adapter: THIS_DIRECTORY}},",
        f"language_model: {{prompt: {quality['prompt']['name']}}}}}`.",
        "",
        f"Learned from {_pairs(quality)} pairs, by {quality['labels']}: {', '.join(learned)}. Rank {tuning.rank}, "
        f"{passes}, learning rate {tuning.learning_rate:g}; the base's weights have the digest "
        f"{quality['base']['weights']}. The loss was {_losses(quality['loss'])} in {span}; guessing has "
        f"{GUESSING:.2f}.",
        "",
    ]
    if failed_to_learn(quality["loss"]):
        lines += [
            "**It learned nothing**: in the last pass it was no better than guessing. Set a lower --learning-rate, or "
            "give it more passes or pairs.",
            "",
        ]
    if quality["held_out"]:
        lines += [
            "Environments that it never saw, by their hand-written progress; both orders together, 95% intervals:",
            "",
            "| environment | pairs | right | names the text shown first | known answers |",
            "|---|---|---|---|---|",
        ]
        for env, figures in quality["held_out"].items():
            accuracy, bias, probe = figures["accuracy"], figures["position_bias"], figures.get("probe")
            of_probe = f"{round(probe['value'] * probe['of'])} of {probe['of']}" if probe else ""
            lines.append(f"| {env} | {accuracy['of']} | {_share(accuracy)} | {bias['value']:.0%} | {of_probe} |")
        lines += ["", f"On average {quality['mean_accuracy']:.0%} are right."]
    else:
        lines.append("No environment was held out, so its accuracy on other environments is unknown.")
    return "\n".join(lines) + "\n"


def failed_to_learn(loss: Sequence[float]) -> bool:
    """Whether the mean loss of the last epoch is that of guessing or NaN, e.g. because the learning rate is too high.

    >>> failed_to_learn([0.64, 0.69, 0.69]), failed_to_learn([0.69, 0.6]), failed_to_learn([0.6, math.nan])
    (True, False, True)
    """
    return math.isnan(loss[-1]) or loss[-1] > 0.98 * GUESSING


def _losses(loss: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in loss)


def _share(rate: Mapping[str, Any]) -> str:
    low, high = rate["ci95"]
    return f"{rate['value']:.0%} [{low:.0%}, {high:.0%}]"
