"""KFP's Docker runner, extended with file ownership, mounts, and cleaning up after Ctrl-C."""

from __future__ import annotations

import os
import re
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kfp import local

from laurel.errors import LaurelError
from laurel.evaluation.formats import counted
from laurel.params.annotation import AnnotateParams
from laurel.params.file import shown
from laurel.permissions import KEYS, is_loopback
from laurel.pipelines.stopping import ended_once_interrupted

if TYPE_CHECKING:
    import docker
    from docker.models.images import Image
    from docker.types import Mount

PROJECT = "/project"
"""Read-only mount point of the working directory."""
SHARED_MEMORY = "2g"
"""Docker gives 64 MB, too little for torch's workers."""
RUN = "laurel.run"
"""Label of a run's containers."""
REVISION = "org.opencontainers.image.revision"
TRACKING = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")


class EngineError(LaurelError):
    """No Docker engine that answers, or no image."""


@contextmanager
def docker_runner(image: str, asked: AnnotateParams, root: Path) -> Iterator[tuple[local.DockerRunner, str, str]]:
    """Yield KFP's runner, the image's name as KFP finds it, and its ID; no container of the run outlives the block.

    Containers that a killed run has left are stopped first.

    Steps run as the caller, in the working directory, which is mounted for reading: an environment's own module or
    a sentence encoder in a folder is found as it is without containers. The folder of a chat model's answers is mounted
    for writing, and the variables that hold keys of its servers are passed on.

    Args:
        image: what the steps run in.
        asked: the annotators.
        root: folder of the steps' outputs, in which no other run works.

    Raises:
        EngineError: the engine does not answer, or stops answering; the image cannot be pulled; the answers do not have
            their own folder.
    """
    mounts = _mounts(asked)
    client = _connect()
    import docker.errors
    import requests

    try:
        found = _find(client, image)
        sys.stderr.write(f"image {image} (revision {found.labels.get(REVISION, 'unknown')})\n")
        _check_holds_laurel(client, image)
        if left := _stop(client, {"label": RUN, "volume": str(root)}):
            sys.stderr.write(f"{counted(left, 'container')} of an earlier run that was killed: stopped\n")
        run = uuid.uuid4().hex
        with _ended_with_the_block(client, run):
            container = _container(client.info(), run, asked)
            yield local.DockerRunner(mounts=mounts, **container), _name(found, image), str(found.id)
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise EngineError(f"The Docker engine failed: {' '.join(str(error).split())}") from error
    finally:
        client.close()


def reaches_containers(uri: str) -> bool:
    """Whether a tracking URI is a server: containers cannot access a database file."""
    return urlsplit(uri).scheme in ("http", "https")


def _connect() -> docker.DockerClient:
    try:
        import docker
    except ModuleNotFoundError:
        raise EngineError(
            "--runner docker needs the Python package docker, which is not installed: pip install 'laurel-rl[cloud]'"
        ) from None
    try:
        return docker.from_env()
    except docker.errors.DockerException as error:
        place = os.environ.get("DOCKER_HOST") or docker.constants.DEFAULT_UNIX_SOCKET.replace("http+", "")
        reason = re.search(r"Error\(\d+, '([^']*)'", str(error))
        raise EngineError(
            f"No Docker engine answers at {place} ({reason[1] if reason else error}). "
            "Start it, set DOCKER_HOST, or use --runner process."
        ) from None


def _find(client: docker.DockerClient, image: str) -> Image:
    """Return the image, pulled if it is not here."""
    import docker.errors

    try:
        return client.images.get(image)
    except docker.errors.ImageNotFound:
        if "/" not in image:  # a name without a registry is one that was built here
            raise EngineError(
                f"The image {image} does not exist: build it with `make image`, or name another with --image."
            ) from None
    except docker.errors.APIError as error:
        if not error.is_client_error():
            raise
        raise EngineError(
            f"--image is {shown(image)}, which is not the reference of an image ({error.explanation}). Name one as "
            "laurel-python:1, or leave it out for that of `make image`."
        ) from None
    sys.stderr.write(f"pulling {image}\n")
    try:
        return client.images.pull(image)
    except docker.errors.APIError as error:
        reason = error.explanation or error
        raise EngineError(
            f"The image {image} is not here and cannot be pulled ({reason}). "
            "Build one with `make image`, or name another with --image."
        ) from None


def _check_holds_laurel(client: docker.DockerClient, image: str) -> None:
    """Raise if no step could start in an image."""
    import docker.errors

    look = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, ('laurel', 'kfp'))))"
    try:
        client.containers.run(image, ["python3", "-c", look], remove=True)
    except (docker.errors.ContainerError, docker.errors.APIError) as error:
        if isinstance(error, docker.errors.APIError) and not error.is_client_error():  # of the engine, not the image
            raise
        raise EngineError(
            f"The image {image} lacks Laurel or kfp for its python3: build one with `make image`."
        ) from None


def _name(built: Image, image: str) -> str:
    """Return a full name of a local image, which KFP recognises as such."""
    names = [*built.tags, *built.attrs["RepoDigests"]]
    if not names:
        raise EngineError(f"The image {image} has no name, which KFP needs: docker tag {image} laurel-python:mine")
    return next((name for name in (image, f"{image}:latest") if name in names), names[0])


def _mounts(asked: AnnotateParams) -> list[Mount]:
    """Return the folders of this machine to mount in a container.

    Raises:
        EngineError: the answers lie in the working directory itself.
    """
    from docker.types import Mount

    project = Path.cwd()
    mounts = [Mount(PROJECT, str(project), type="bind", read_only=True)]
    if asked.keeps_responses:
        responses = asked.language_model.responses
        folder = (project / responses).parent.resolve()
        if project.resolve().is_relative_to(folder):
            raise EngineError(
                f"annotate.language_model.responses is {responses}, but containers may only read the folder that it is "
                f"in. Put it into a folder: responses/{responses.name}."
            )
        folder.mkdir(parents=True, exist_ok=True)
        place = responses.parent if responses.is_absolute() else Path(PROJECT) / responses.parent
        mounts.append(Mount(str(place), str(folder), type="bind"))
    return mounts


def _container(engine: dict[str, Any], run: str, asked: AnnotateParams) -> dict[str, Any]:
    """Return the start options of a step's container."""
    security = engine.get("SecurityOptions") or []
    uri = os.environ.get(TRACKING[0], "")
    names = (*(TRACKING if reaches_containers(uri) else ()), *asked.api_keys, KEYS)
    container: dict[str, Any] = {
        "labels": {RUN: run},
        "environment": {name: os.environ[name] for name in names if os.environ.get(name)},
        "working_dir": PROJECT,
        "shm_size": SHARED_MEMORY,
    }
    if "name=rootless" not in security:  # there, root in a container is the caller outside
        container["user"] = f"{os.getuid()}:{os.getgid()}"
    if "name=selinux" in security:
        container["security_opt"] = ["label=disable"]  # a label would stay on the caller's files
    if any(map(_is_loopback, (uri, *asked.servers))):
        container["network_mode"] = "host"  # a server that listens only to this machine
    return container


def _is_loopback(uri: str) -> bool:
    return is_loopback(urlsplit(uri).hostname)


@contextmanager
def _ended_with_the_block(client: docker.DockerClient, run: str) -> Iterator[None]:
    """Stop a run's containers on Ctrl-C, and whatever is left of them at the end."""
    interrupted = threading.Event()
    of_run = {"label": f"{RUN}={run}"}
    try:
        with ended_once_interrupted(partial(_stop, client, of_run), interrupted):
            yield
    finally:
        if _stop(client, of_run) or interrupted.is_set():
            sys.stderr.write("the containers of this run were stopped\n")


def _stop(client: docker.DockerClient, filters: dict[str, str]) -> int:
    """Kill the running containers that Docker's filters choose; return how many there were."""
    import docker.errors

    containers = client.containers.list(filters=filters, ignore_removed=True)
    for container in containers:
        with suppress(docker.errors.APIError):  # it has already ended
            container.kill()
    return len(containers)
