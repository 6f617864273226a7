"""The same params and seed give the same labels, rewards and agents, whatever instructions the CPU has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from laurel.device import single_threaded
from laurel.machine import COMMON, KERNELS, common_kernels, has_avx2, machine

OTHERS = {
    "without vectors": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        KERNELS: "Nehalem",
    },
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}
"""Other CPUs, as libraries let one say."""

COMPUTE = """
import hashlib, json
import numpy as np
import torch
from laurel.agents.policy import ActorCritic
from laurel.feedback.annotator import Pair
from laurel.feedback.annotators.embedding import EmbeddingAnnotator
from laurel.llm.encoder import PACKAGED, load_encoder
from laurel.params.judges import EmbeddingParams
from laurel.params.rewards import PreferenceParams
from laurel.rewards.bradley_terry import Comparisons, fit
from laurel.rewards.model import raw_rewards
from laurel.rewards.normalizer import Normalizer

torch.set_num_threads(1)
texts = [f"You pick up the {c} {o}." for c in ("red", "blue", "grey") for o in ("key", "ball", "box")] + ["You bump."]
encoder = load_encoder(PACKAGED)
vectors = encoder.encode(texts)
judge = EmbeddingAnnotator(encoder, EmbeddingParams(tie_band=0.0), "Get the blue key.", "Bump into a wall.")
first, second = np.triu_indices(len(texts), 1)
p = np.array([j.p_first for j in judge.annotate(Pair(texts[a], texts[b]) for a, b in zip(first, second))])
segments = np.arange(len(texts))
comparisons = Comparisons(segments[:, None], segments, first, second, p)
ensemble = fit(vectors.astype(np.float64), comparisons, PreferenceParams(kind="preference", hidden=[32]), 30, seed=0)
raw = raw_rewards(ensemble, vectors.astype(np.float64)).mean(axis=0)
torch.manual_seed(0)
policy = ActorCritic(60, 7, continuous=False, hidden=(64, 64))
def digest(*arrays):
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
print(json.dumps({
    "embeddings": digest(vectors),
    "labels": digest(p),
    "reward model": digest(*[weight.detach().numpy() for weight in ensemble.parameters()]),
    "rewards": digest(Normalizer.of(raw)(raw)),
    "agents begin with": digest(*[weight.detach().numpy() for weight in policy.parameters()]),
}))
"""


def computed(settings: dict[str, str]) -> dict[str, str]:
    environment = {**os.environ, **settings, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", COMPUTE], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    return computed({})


@pytest.mark.slow
@pytest.mark.parametrize("cpu", OTHERS)
def test_results_do_not_depend_on_the_instruction_set(here: dict[str, str], cpu: str) -> None:
    assert computed(OTHERS[cpu]) == here


def test_workers_multiply_with_the_common_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KERNELS, raising=False)
    with common_kernels():
        assert os.environ.get(KERNELS) == (COMMON if has_avx2() else None)
    assert KERNELS not in os.environ
    monkeypatch.setenv(KERNELS, "Zen")
    with common_kernels():
        assert os.environ[KERNELS] == "Zen", "what the user has set stays"
    assert os.environ[KERNELS] == "Zen"


@pytest.mark.parametrize("installed", [True, False])
def test_only_workers_have_the_common_kernels(tmp_path: Path, installed: bool) -> None:
    """Not even for a moment the process that starts them, for one of its threads may be importing another BLAS; but if
    the workers' server cannot import Laurel by itself, there is no other way."""
    (tmp_path / "script.py").write_text(
        "import os\n"
        "from laurel import pool\n"
        "from laurel.pool import Job, run_jobs\n"
        "def work(advance):\n"
        "    import numpy, threadpoolctl\n"
        "    advance(sum(one['architecture'] == 'Haswell' for one in threadpoolctl.threadpool_info()))\n"
        "if __name__ == '__main__':\n"
        "    changed, told, putenv = [], [], os.putenv\n"
        "    os.putenv = lambda name, value: (changed.append(name), putenv(name, value))\n"
        f"    pool._installed = lambda: {installed}\n"
        "    os.environ['SEEN'] = 'so changes are seen'\n"
        "    run_jobs([Job('job', work, ())], 1, lambda n, **_: told.append(n))\n"
        "    print({os.fsdecode(name) for name in changed} - {'SEEN'} if b'SEEN' in changed else 'unseen', sum(told))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != KERNELS}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{ {KERNELS} if has_avx2() and not installed else set() } {int(has_avx2())}\n"


def test_the_machine_is_described() -> None:
    import torch

    found = machine()
    assert found["cpu"] != ""
    assert found["torch_isa"] == torch.backends.cpu.get_cpu_capability()
    assert found["torch_threads"] == torch.get_num_threads()
    assert all(name in found for name in ("architecture", "python", "numpy", "blas", "workers_blas"))
    json.dumps(found)


def test_threads_are_as_before_after_a_block_in_one() -> None:
    """So a notebook that calls a stage has as many threads afterwards as before."""
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with suppress(KeyError), single_threaded():
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
