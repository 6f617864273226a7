"""What tests of stages, the command line and whole pipelines share."""

from __future__ import annotations

import logging
import os
import pkgutil
import shutil
import signal
import sys
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

import laurel.envs
from browser import PROGRAM, Browser
from installed import install_examples
from laurel import permissions
from laurel.agents.algorithms.language_model import LanguageModelAlgorithm
from laurel.params.language_actor import LanguageActorParams
from tiny_project import UNTRACKED, Project, make_repository

# The same examples every time, however slow the machine: a search for new ones is
# `pytest --hypothesis-profile default`.
settings.register_profile("laurel", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("laurel")

# Reports name the commit: so they are the same bytes, whichever repository a test runs stages in.
os.environ["LAUREL_REVISION"] = "0" * 40

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a script: tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _environment_as_it_was() -> Iterator[None]:
    """Take back that a command chose where MLflow logs, and what it was allowed."""
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_DISABLE_TELEMETRY", permissions.KEYS, permissions.RESPONSES)
    before = {name: os.environ.pop(name, None) for name in names}
    yield
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@pytest.fixture
def own_process() -> Iterator[None]:
    """Take back what training and playing set for their process, in tests that call them in this one."""
    import torch

    logger, threads = logging.getLogger("laurel.envs"), torch.get_num_threads()
    level = logger.level
    yield
    logger.setLevel(level)
    torch.set_num_threads(threads)


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the folder examples/ as another package, for the processes that are started, too."""
    site = tmp_path / "site"
    install_examples(site)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)  # beside where this package itself lies
    laurel.envs._load_adapters.cache_clear()
    yield site
    laurel.envs._load_adapters.cache_clear()
    if pendulum := sys.modules.get("laurel_examples.pendulum"):
        pendulum.PendulumAdapter.ids = ()  # or it would describe Pendulum-v1 in tests without the package, too
    for name in [name for name in sys.modules if name.partition(".")[0] == "laurel_examples"]:
        del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def _warm_workers() -> Iterator[None]:
    """Import once what worker processes need.

    The server that they are forked from starts with the first test that wants one, and serves all others of this
    process, whatever they would have it import.
    """
    modules = ["laurel.training.arms", "laurel.evaluation.play", "torch._dynamo", "envpool", "minigrid", "pandas"]
    modules += [*LanguageModelAlgorithm(LanguageActorParams(loss="dpo")).imports("train"), "stable_baselines3"]
    adapters = [f"laurel.envs.{module.name}" for module in pkgutil.iter_modules(laurel.envs.__path__)]
    choose = forkserver.set_forkserver_preload
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            forkserver,
            "set_forkserver_preload",
            lambda names: choose([*names, *modules, *adapters, "pyarrow.pandas_compat"]),
        )
        yield


@pytest.fixture(scope="session")
def _no_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database without runs, whose tables take it a second to make."""
    from laurel.tracking.server import make_tables

    file = tmp_path_factory.mktemp("no_runs") / "mlflow.db"
    make_tables(file)
    return file


@pytest.fixture
def database(_no_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have MLflow log to a new database; return its URI."""
    uri = f"sqlite:///{shutil.copy(_no_runs, tmp_path / 'mlflow.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which `dvc repro` has run once; only to be looked at. Processes of one test run share it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    project = Project(root / "finished")
    log = root / "finished.log"
    with FileLock(root / "finished.lock"):
        if not log.exists():
            make_repository(project.path)
            log.write_text(project.dvc("repro"))
    return project


@pytest.fixture(scope="session")
def rewarded(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project on the frozen lake with a reward model, but no agents; only to be looked at."""
    changes = {
        **UNTRACKED,
        "env.id": "FrozenLake-v1",
        "arms": "full",
        "collect.steps": 600,
        "rewards.preference.max_epochs": 5,
    }
    project = Project.create(tmp_path_factory.mktemp("rewarded") / "p", changes)
    project.run("collect", "caption", "annotate", "train-reward")
    return project


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that all tests of a session share; none is needed where there is none."""
    if PROGRAM is None:
        pytest.skip("Chromium is not installed")
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()
