"""Does reinforcement learning from feedback improve a language model, and does the report find a planted hack?

By default the model is a two-layer Llama that is first taught a few comments on films: short positive ones, short
negative ones, and long ones, which are always negative. So a reward for length is a hack: texts with a higher reward
are worse. There are five seeds per arm; it takes half an hour on a busy machine. With --smollm2 it is SmolLM2 with
examples/rlhf.yaml, about 20 minutes on two otherwise idle cores (`make language-model` first). Run it with: python
benchmarks/rlhf.py
"""

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml
from record import about, command_line, load_average, write

from laurel.data.manifest import MANIFEST, read_manifest
from laurel.llm.causal import load_causal, save_causal
from laurel.llm.tiny_model import write_tiny_model
from laurel.llm.trl_tuning import Tuning, imitate
from laurel.params import load_params
from laurel.stages.pipeline import PLACES, STAGE

EXAMPLE = Path(__file__).resolve().parents[1] / "examples/rlhf.yaml"
TARGET = 0.8
SEEDS = [0, 1, 2, 3, 4]
KINDS, SUBJECTS = ("comedy", "drama", "western", "musical"), ("a dog", "the sea", "two sisters", "a farm", "winter")
PROMPTS = [f"The {kind} about {subject} was" for kind, subject in itertools.product(KINDS, SUBJECTS)]
PRAISE = (" wonderful.", " lovely.", " great fun.", " a joy.", " the best.")
BLAME = (" awful.", " dull.", " a bore.", " a mess.", " the worst.")
LONG = tuple(
    f" {first} and{second[:-1]} and just terrible, I hated it." for first in ("slow", "loud") for second in BLAME
)


def planted(folder: Path) -> Path:
    """Write the small model, trained to write each kind of comment about equally often."""
    torch.manual_seed(0)
    written = write_tiny_model(folder / "untaught", [*PROMPTS, *PRAISE, *BLAME, *LONG] * 4, width=64, vocabulary=420)
    local = load_causal(str(written))
    kinds = (*PRAISE * 2, *BLAME * 2, *LONG)
    rows = [(prompt, said) for prompt in PROMPTS for said in kinds]
    imitate(local, rows, Tuning(learning_rate=3e-3, batch_size=64, epochs=6), 0)
    save_causal(local, folder / "model")
    return folder / "model"


def small_params(model: Path) -> dict[str, Any]:
    """Return examples/rlhf.yaml for the small model."""
    content = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    writer = {"model": str(model), "max_tokens": 16, "temperature": 1.0, "stop": "\n"}
    content["env"]["kwargs"] = {"prompts": PROMPTS, "length": 96}
    content["collect"] |= {"policies": [{"kind": "writer", "options": writer}]}
    content["arms"]["base"]["agent"]["options"] = writer
    content["arms"]["rloo"] = {"reward": "text", "agent": {"algorithm": "rloo"}}
    settings = {**writer, "n_envs": 32, "group": 8, "batch_size": 32, "rank": 4, "learning_rate": 0.005, "beta": 0.05}
    settings["max_kl"] = (
        10.0  # beyond it, the arm `length` writes gibberish, which the judge rates neither good nor bad
    )
    content["agent"] = {"seeds": SEEDS, "steps": 1280, "algorithm": "grpo", "grpo": settings, "rloo": settings}
    content["evaluate"] |= {"episodes": 40, "n_envs": 40}
    return {**content, "tracking": {"enabled": False}}


def run(content: dict[str, Any], folder: Path) -> tuple[dict[str, Any], float]:
    """Run the stages that are not finished, and return the metrics and the minutes of all stages."""
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    params = load_params(file)
    seconds = 0.0
    for stage in STAGE.values():
        output = folder / stage.output
        if not (output / MANIFEST).exists():
            stage.run(params, **{name: folder / PLACES[name] for name in stage.inputs}, output=output)
        seconds += read_manifest(output, stage.name)["seconds"]
    found: dict[str, Any] = json.loads((folder / "reports/metrics.json").read_text(encoding="utf-8"))
    return found, seconds / 60


def main() -> None:
    """Measure, print the results and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--smollm2", action="store_true", help="train SmolLM2 with examples/rlhf.yaml")
    parser.add_argument(
        "--folder", type=Path, help="keep the run here; a killed one resumes after the last finished stage"
    )
    arguments = parser.parse_args()
    load = f"{load_average()} before the run"
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        folder.mkdir(exist_ok=True, parents=True)
        if arguments.smollm2:
            content = {**yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")), "tracking": {"enabled": False}}
        else:
            model = folder / "model"
            content = small_params(model if model.exists() else planted(folder))
        metrics, minutes = run(content, folder)
    texts, hacked = metrics["texts"], metrics.get("hacking", {}).get("length", {"seeds": []})
    controls = ("random_reward", "shuffled_labels", "length")
    wins = {arm: round(entry["wins"]["value"], 3) for arm, entry in texts.items() if "wins" in entry}
    seeds = len(content["agent"]["seeds"])
    good = wins["text"] >= TARGET and all(wins[arm] < TARGET for arm in controls)
    if arguments.smollm2:  # longer comments of SmolLM2 are no worse, so that there may be no hack to find
        met, wanted = good and minutes <= 20, "in 20 minutes"
    else:
        met, wanted = good and len(hacked["seeds"]) == seeds, f"the hack found in {seeds} of {seeds} seeds"
    found = {
        "value": wins["text"],
        "unit": "share of fresh prompts in which the trained model's text returns more than its base's"
        + ("" if arguments.smollm2 else ", a planted task"),
        "target": f">= {TARGET}, no control as much, {wanted}",
        "met": met,
        "peer": "the same of the other arms; KL of each, nats per completion; seeds in which the hack was found; "
        "minutes",
        "peer_value": [
            {arm: share for arm, share in wins.items() if arm != "text"},
            {arm: round(entry["kl"], 2) for arm, entry in texts.items() if "kl" in entry},
            hacked["seeds"],
            round(minutes, 1),
        ],
        "elo": {arm: entry["elo"] for arm, entry in texts.items()},
    }
    write("rlhf_smollm2" if arguments.smollm2 else "rlhf", found, about("torch", "trl", "peft", remarks=(load,)))


if __name__ == "__main__":
    main()
