"""KFP's Docker runner with a fake engine: containers' settings and the user's messages."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest
from docker.errors import APIError, ContainerError, ImageNotFound
from kfp.local import docker_task_handler

from laurel.cli.app import main
from tiny_project import Project

RESPONSES = "annotate.language_model.responses"
SERVER = "https://someone:secret@mlflow.example.org"


class Engine:
    """Holds one image, and no container that would have to be stopped."""

    def __init__(self, *images: str, security: tuple[str, ...] = ()) -> None:
        self.here = images
        self.security = security
        self.images = self
        self.containers = SimpleNamespace(list=lambda **_: [], run=lambda *_, **__: b"")

    def get(self, name: str) -> Any:
        if name not in self.here:
            raise ImageNotFound(name)
        return SimpleNamespace(tags=list(self.here), attrs={"RepoDigests": []}, labels={}, id="sha256:0")

    def pull(self, *_: str) -> Any:
        raise APIError("refused", explanation="pull access denied")

    def info(self) -> dict[str, Any]:
        return {"SecurityOptions": self.security}

    def close(self) -> None:
        pass


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """Run the pipeline with steps that say they have begun and are gone, which KFP takes for success."""

    def run(engine: Engine, image: str = "laurel-python:mine", **changes: Any) -> tuple[int, list[dict[str, Any]]]:
        containers: list[dict[str, Any]] = []

        def vanish(**arguments: Any) -> int:
            containers.append(arguments)
            sys.stdout.write("laurel step collect: begun\n")
            return 0

        monkeypatch.setattr(docker, "from_env", lambda: engine)
        monkeypatch.setattr(docker_task_handler, "run_docker_container", vanish)
        project = Project.create(tmp_path / "p", changes)
        monkeypatch.chdir(project.path)
        code = main(["pipeline", "run", "--runner", "docker", "--image", image, "--output", "out"])
        return code, containers

    return run


def test_an_image_without_laurel(started: Any, capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine("laurel-python:mine")

    def fail(*_: Any, **__: Any) -> bytes:
        raise ContainerError(None, 1, "python3", "laurel-python:mine", b"")

    engine.containers.run = fail
    code, containers = started(engine)
    assert (code, containers) == (2, [])
    assert "laurel: The image laurel-python:mine lacks Laurel or kfp" in capsys.readouterr().err


def test_a_container_that_vanished_has_failed(started: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _ = started(Engine("laurel-python:mine"))
    assert code == 2
    assert "laurel: step collect failed without a reason" in capsys.readouterr().err
    assert not (tmp_path / "p" / "out" / "reports").exists()


def test_containers_that_a_killed_run_left_are_stopped(
    started: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They would go on training and asking, beside those of the next run."""
    engine, killed = Engine("laurel-python:mine"), []
    left = SimpleNamespace(kill=lambda: killed.append("left"))
    of_output = {"label": "laurel.run", "volume": str(tmp_path / "p" / "out" / "steps")}
    engine.containers.list = lambda *, filters, **_: [left] if filters == of_output else []
    started(engine)
    assert killed == ["left"]
    assert "1 container of an earlier run that was killed: stopped\n" in capsys.readouterr().err


def test_what_a_container_gets(started: Any, tmp_path: Path) -> None:
    _, (container, *_) = started(Engine("laurel-python:mine"))
    assert container["image"] == "laurel-python:mine"
    assert container["user"] == f"{os.getuid()}:{os.getgid()}"
    assert container["shm_size"] == "2g"
    assert container["working_dir"] == "/project"
    (mount,) = container["mounts"]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (str(tmp_path / "p"), "/project", True)
    assert container["volumes"][str(tmp_path / "p" / "out" / "steps")]["mode"] == "rw"
    assert len(container["labels"]["laurel.run"]) == 32


CHAT = {
    "annotate.annotator": "openai",
    "annotate.openai": {"model": "m", "base_url": "http://127.0.0.1:8000/v1", "api_key_env": "A_KEY"},
}


def test_what_a_chat_model_needs(started: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A_KEY", "hidden")
    monkeypatch.setenv("ANOTHER_KEY", "hidden too")
    _, (container, *_) = started(Engine("laurel-python:mine"), **CHAT)
    assert container["environment"] == {"A_KEY": "hidden"}
    assert container["network_mode"] == "host"
    project, answers = container["mounts"]
    assert project["ReadOnly"]
    assert (answers["Source"], answers["Target"]) == (str(tmp_path / "p" / "responses"), "/project/responses")
    assert not answers["ReadOnly"]
    assert (tmp_path / "p" / "responses").is_dir()


def test_a_store_outside_the_project_needs_permission(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = str(tmp_path / "shared" / "answers.db")
    code, containers = started(Engine("laurel-python:mine"), **CHAT, **{RESPONSES: shared})
    assert (code, containers) == (2, []), "which a params file alone cannot want"
    shutil.rmtree(tmp_path / "p")
    monkeypatch.setenv("LAUREL_ALLOW_RESPONSES", shared)
    _, (container, *_) = started(Engine("laurel-python:mine"), **CHAT, **{RESPONSES: shared})
    assert container["mounts"][1]["Source"] == container["mounts"][1]["Target"] == str(tmp_path / "shared")


def test_a_store_next_to_params_yaml_is_refused(started: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, containers = started(Engine("laurel-python:mine"), **CHAT, **{RESPONSES: "answers.db"})
    assert (code, containers) == (2, [])
    assert "Put it into a folder: responses/answers.db." in capsys.readouterr().err


def test_root_of_a_rootless_engine_is_the_caller(started: Any) -> None:
    _, (container, *_) = started(Engine("laurel-python:mine", security=("name=rootless",)))
    assert "user" not in container


def test_a_server_is_logged_to(
    started: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SERVER)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "hidden")
    _, (container, *_) = started(Engine("laurel-python:mine"))
    assert container["environment"] == {"MLFLOW_TRACKING_URI": SERVER, "MLFLOW_TRACKING_TOKEN": "hidden"}
    assert "network_mode" not in container
    said = "".join(capsys.readouterr()) + (tmp_path / "p" / "out" / "pipeline.log").read_text()
    assert "secret" not in said
    assert "hidden" not in said
    assert "not logged" not in said


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_a_server_of_this_machine_is_reached(started: Any, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{host}:5000")
    _, (container, *_) = started(Engine("laurel-python:mine"))
    assert container["network_mode"] == "host"


def test_a_local_database_cannot_be_reached_from_a_container(
    started: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "hidden")
    _, (container, *_) = started(Engine("laurel-python:mine"))
    assert not container.get("environment")
    assert capsys.readouterr().err.count("runs are not logged") == 1
    started(Engine("laurel-python:mine"), **{"tracking.enabled": False})
    assert "not logged" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        ("laurel-python:never", "The image laurel-python:never does not exist: build it with `make image`"),
        (
            "example.org/laurel-python:1",
            "is not here and cannot be pulled (pull access denied). Build one with `make image`",
        ),
    ],
)
def test_an_image_that_is_missing_is_reported(
    started: Any, capsys: pytest.CaptureFixture[str], image: str, sentence: str
) -> None:
    code, containers = started(Engine("laurel-python:mine"), image)
    assert (code, containers) == (2, [])
    assert sentence in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (400, 'laurel: --image is "My Image", which is not the reference of an image (invalid reference format). Name'),
        (500, "laurel: The Docker engine failed: "),
    ],
)
def test_an_image_that_has_no_such_name_is_reported(
    started: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, status: int, sentence: str
) -> None:
    engine = Engine("laurel-python:mine")

    def refuse(_: str) -> Any:
        raise APIError(
            "no",
            response=SimpleNamespace(url="", reason="", status_code=status),
            explanation="invalid reference format",
        )

    monkeypatch.setattr(engine, "get", refuse)
    assert started(engine, "My Image") == (2, [])
    assert capsys.readouterr().err.splitlines()[-1].startswith(sentence)


def test_an_image_without_its_tag_is_found(started: Any) -> None:
    _, (container, *_) = started(Engine("laurel-python", "laurel-python:latest"), "laurel-python")
    assert container["image"] == "laurel-python"


def test_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    assert run(tmp_path) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"laurel: No Docker engine answers at unix://{tmp_path}/docker.sock (No such file or directory). "
        "Start it, set DOCKER_HOST, or use --runner process."
    )


def test_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    assert run(tmp_path) == 2
    assert capsys.readouterr().err.endswith("which is not installed: pip install 'laurel-rl[cloud]'\n")


def run(path: Path) -> int:
    project = Project.create(path / "p", {"tracking.enabled": False})
    params = str(project.path / "params.yaml")
    return main(["pipeline", "run", "--runner", "docker", "--params", params, "--output", str(path / "out")])
