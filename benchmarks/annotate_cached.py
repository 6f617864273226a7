"""The cost of annotation when every answer is stored: microseconds per pair, and memory from 10^4 to 10^6 pairs.

Measured from the sampled pairs to their labels on disk, in the stage, in a separate process for each number of pairs.
Both orders are asked. All answers are distinct, so that each has to be parsed. Also measured: the whole stage, with
imports, the sampling of pairs and the report on label quality, and the time if all answers are the same. Run it with:
python benchmarks/annotate_cached.py [PAIRS]

With --mlflow: the time to log 10^5 judgements in MLflow (figures, prompt, traces of a sample with gold labels, and
the files), compared with the time that the fastest chat server takes for them.
"""

import json
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from record import RESULTS, about, command_line, load_average, write

FEW, MANY = 10_000, 1_000_000
SEGMENTS = 5_000
TARGET_MICROSECONDS, TARGET_MEGABYTES = 20, 64
JUDGEMENTS, TARGET_SHARE = 100_000, 0.05
PARAMS = """
seed: 0
env: {{id: MiniGrid-Empty-5x5-v0}}
collect: {{steps: 1}}
arms: [preference]
agent: {{seeds: [0], steps: 1}}
annotate:
  annotator: openai
  n_pairs: {pairs}
  probe: {{success_questions: 0}}
  openai: {{model: m, base_url: "http://127.0.0.1:9/v1"}}
  language_model: {{responses: {responses}}}
tracking: {{enabled: false}}
"""


def main() -> None:
    """Measure both numbers of pairs, print the result and write it."""
    parser = command_line(__doc__)
    parser.add_argument("pairs", nargs="?", type=int, default=MANY, help=f"the larger number (default: {MANY})")
    parser.add_argument("--mlflow", action="store_true", help="measure logging in MLflow instead")
    options = parser.parse_args()
    n_pairs = options.pairs
    if options.mlflow:
        mlflow()
        return
    load = f"{load_average()} before the run"
    with tempfile.TemporaryDirectory() as folder:
        small = _measured(Path(folder) / "few", FEW, distinct=True)
        identical = _measured(Path(folder) / "alike", FEW, distinct=False)
        large = _measured(Path(folder) / "lots", n_pairs, distinct=True)
    cost, growth = _microseconds(large, "judging"), large["judging_peak"] - small["judging_peak"]
    found = {
        "value": round(cost, 1),
        "unit": f"microseconds per pair with both answers stored, with {large['pairs']:.0f} pairs",
        "target": f"<= {TARGET_MICROSECONDS}, and at most {TARGET_MEGABYTES} MB more memory than with {FEW} pairs, "
        "of which 16 are the pairs themselves",
        "met": cost <= TARGET_MICROSECONDS and growth <= TARGET_MEGABYTES,
        "peer": f"peak MB of memory with {FEW} and {large['pairs']:.0f} pairs; the same for the whole stage; "
        "microseconds per "
        f"pair: for the whole stage; and with {FEW}, answers distinct and identical",
        "peer_value": [
            *(round(spent["judging_peak"]) for spent in (small, large)),
            *(round(spent["peak"]) for spent in (small, large)),
            round(_microseconds(large, "seconds"), 1),
            *(round(_microseconds(spent, "judging"), 1) for spent in (small, identical)),
        ],
    }
    write("annotate_cached", found, about("pyarrow", "laurel-rl", remarks=(load,), sqlite=sqlite3.sqlite_version))


def mlflow() -> None:
    """Measure what MLflow costs, and write it."""
    load = f"{load_average()} before the run"
    requests = json.loads((RESULTS / "annotate_throughput_unlimited.json").read_text())["value"]
    asking = JUDGEMENTS / requests
    with tempfile.TemporaryDirectory() as folder:
        spent = _measured(Path(folder) / "tracked", JUDGEMENTS // 2, distinct=True, mode="tracked")
    share = spent["tracked"] / asking
    found = {
        "value": round(share, 3),
        "unit": f"CPU time of logging {JUDGEMENTS} judgements in MLflow, as a share of the time to get them",
        "target": f"<= {TARGET_SHARE}",
        "met": share <= TARGET_SHARE,
        "peer": f"seconds to get them, at {requests} requests/s; CPU seconds of MLflow, and seconds from start to end; "
        "traces, and gold labels on them",
        "peer_value": [round(asking), *(round(spent[part], 1) for part in ("tracked", "wall", "traces", "labelled"))],
    }
    write("judgements_in_mlflow", found, about("mlflow", "laurel-rl", remarks=(load,)))


def _microseconds(measured: dict[str, float], seconds: str) -> float:
    return measured[seconds] / measured["pairs"] * 1e6


def _measured(folder: Path, pairs: int, *, distinct: bool, mode: str = "annotate") -> dict[str, float]:
    """Fill a store with all answers, and run the stage in a process of its own."""
    folder.mkdir()
    (folder / "params.yaml").write_text(PARAMS.format(pairs=pairs, responses=folder / "responses.db"))
    subprocess.run([sys.executable, __file__, "fill", str(folder), str(int(distinct))], check=True)  # noqa: S603
    done = subprocess.run(  # noqa: S603
        [sys.executable, __file__, mode, str(folder)], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def _fill(folder: Path, distinct: bool) -> None:
    """Write captions, and the answers to all questions about them."""
    from laurel.data.captions import Segments, Vocabulary, write_segments, write_vocabulary
    from laurel.data.directory import output_directory
    from laurel.envs import adapter_for
    from laurel.feedback.annotator import Pair
    from laurel.feedback.annotators import make_annotator
    from laurel.feedback.language_model import LanguageModelAnnotator
    from laurel.feedback.pairs import sample_pairs
    from laurel.llm.chat import ChatRequest, Identity, Message, Reply
    from laurel.llm.responses import Exchange, ResponseStore
    from laurel.params import load_params
    from laurel.seeding import derive_seed

    params = load_params(folder / "params.yaml")
    texts = [f"You pass wall number {i}, turn left and see the goal {i % 97} steps away." for i in range(SEGMENTS)]
    ones, zeros = np.ones(SEGMENTS, dtype=np.int64), np.zeros(SEGMENTS, dtype=np.int64)
    vocabulary = Vocabulary(texts, ones, zeros, zeros.astype(np.int32))
    segments = Segments.units(vocabulary)
    with output_directory(folder / "captions", stage="caption", params=params.dump("seed", "env", "caption")) as out:
        write_vocabulary(out.path, vocabulary)
        write_segments(out.path, segments)
    seed = derive_seed(params.seed, "annotate")
    first, second = sample_pairs(segments.counts, params.annotate.n_pairs, "uniform", np.random.default_rng(seed))
    annotator = make_annotator(params.annotate, adapter_for(params.env), seed)
    assert isinstance(annotator, LanguageModelAnnotator)
    keys = annotator._asker._keys

    def rows() -> Iterator[tuple[str, str]]:
        for number, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            for swapped in (0, 1):
                best = 1 + (number + swapped) % 2
                analysis = (
                    f"In text {number * 2 + swapped if distinct else 1} the goal is nearer, which helps the agent."
                )
                answer = json.dumps({"analysis": analysis, "best_description": best})
                yield keys.of(Pair(texts[a], texts[b]), swapped), answer

    with ResponseStore(params.annotate.language_model.responses) as store:
        key, text = next(rows())
        request = ChatRequest((Message("user", "as in the prompt"),))
        store.put(Exchange(key, Identity("m"), request, Reply(text, None, 300, 30)))
    columns = (
        "context, logprobs, input_tokens, output_tokens, finish_reason, seconds, cached_tokens, asked_at, messages"
    )
    with sqlite3.connect(params.annotate.language_model.responses) as connection:
        insert = (
            f"INSERT OR IGNORE INTO responses (key, text, {columns}) "  # noqa: S608  names alone
            f"SELECT ?, ?, {columns} FROM responses WHERE key = ?"
        )
        connection.execute("PRAGMA synchronous = OFF")
        connection.executemany(insert, ((digest, answer, key) for digest, answer in rows()))


def _annotate(folder: Path) -> None:
    """Run the stage; return its duration and peak memory, while judging and in total."""
    from laurel.data.labels import LabelWriter
    from laurel.data.manifest import read_manifest
    from laurel.params import load_params
    from laurel.stages import annotate
    from laurel.stages.pipeline import STAGE

    params = load_params(folder / "params.yaml")
    began: list[float] = []
    peaks: list[float] = []
    said: dict[str, float] = {}
    create, leave = LabelWriter.__init__, LabelWriter.__exit__

    def begins(writer: LabelWriter, *arguments: Any) -> None:
        peaks.append(_peak())
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        create(writer, *arguments)
        began.append(time.perf_counter())

    def ends(writer: LabelWriter, *arguments: Any) -> None:
        leave(writer, *arguments)
        said["judging"] = time.perf_counter() - began[0]
        said["judging_peak"] = _peak()

    LabelWriter.__init__, LabelWriter.__exit__ = begins, ends  # type: ignore[method-assign, assignment]
    start = time.perf_counter()
    annotate.run(**STAGE["annotate"].given(params), captions=folder / "captions", output=folder / "preferences")
    said["seconds"] = time.perf_counter() - start
    manifest = read_manifest(folder / "preferences")
    assert manifest["usage"]["calls"] == 0
    assert manifest["usage"]["cached"] == 2 * manifest["counts"]["pairs"]
    said |= {"pairs": manifest["counts"]["pairs"], "peak": max(*peaks, _peak())}
    sys.stdout.write(json.dumps(said))


def _tracked(folder: Path) -> None:
    """Run the stage, then log its labels to MLflow and return how long that took."""
    import os

    from laurel.data.directory import Output
    from laurel.data.gold import GoldFile
    from laurel.data.manifest import read_manifest
    from laurel.data.sample import read_sample
    from laurel.envs import adapter_for
    from laurel.feedback.references import task_of
    from laurel.params import load_params
    from laurel.stages import annotate
    from laurel.stages.pipeline import STAGE
    from laurel.tracking.run import Run
    from laurel.tracking.server import connect

    params = load_params(folder / "params.yaml")
    labels = folder / "preferences"
    annotate.run(**STAGE["annotate"].given(params), captions=folder / "captions", output=labels)
    gold = GoldFile(folder / "gold.jsonl", task_of(params.annotate, adapter_for(params.env)))
    for pair in read_sample(labels)[:10]:
        gold.add(pair["first"], pair["second"], "first", "uniform")
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / 'mlflow.db'}"
    os.chdir(folder)
    client, experiment = connect("judgements")
    run = Run(client, client.create_run(experiment).info.run_id, experiment)
    judged = params.annotate.model_copy(update={"gold": gold.path})
    sections = {"env": params.env, "caption": params.caption, "annotate": judged}
    wall, began = time.perf_counter(), time.process_time()
    annotate.track(run, sections, Output(labels, counts=read_manifest(labels)["counts"]))
    said: dict[str, float] = {"tracked": time.process_time() - began, "wall": time.perf_counter() - wall}
    traces = client.search_traces([experiment], max_results=100)
    said |= {"traces": len(traces), "labelled": sum(bool(trace.info.assessments) for trace in traces)}
    sys.stdout.write(json.dumps(said))


def _peak() -> float:
    """Return this process's peak memory in MB since the last reset."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", place, distinct]:
            _fill(Path(place), distinct == "1")
        case ["annotate", place]:
            _annotate(Path(place))
        case ["tracked", place]:
            _tracked(Path(place))
        case _:
            main()
