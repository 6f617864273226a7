"""Checks an image's configuration in its registry before a run is submitted.

Uses the pull API of registries (https://github.com/opencontainers/distribution-spec/blob/main/spec.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession
from requests import RequestException

from laurel.pipelines.images import NOTHING, Needs

ARCHITECTURE = "amd64"
"""Architecture of Vertex AI's machines."""
REVISION = "LAUREL_REVISION"
"""Variable that marks an image with Laurel; docker/Dockerfile sets it, images made from that inherit it."""
CUDA = ("NVIDIA_VISIBLE_DEVICES=", "CUDA_VERSION=")
"""Variables that mark an image with CUDA: docker/Dockerfile sets the first, NVIDIA's own images both."""
PACKAGES = "laurel.packages"
"""Label that lists an image's further packages; docker/Dockerfile sets it from EXTRAS."""
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_TIMEOUT = 15.0


@dataclass(frozen=True)
class Finding:
    """Result of checking an image: a problem that keeps it from running, or a remark on why it could not be checked."""

    problem: str | None = None
    remark: str | None = None


def look_into(image: str, credentials: Any, needs: Needs = NOTHING) -> Finding:
    """Read an image's configuration.

    Args:
        image: its reference, with host, and digest or tag.
    """
    try:
        with AuthorizedSession(credentials) as session:
            return _look_into(image, session, needs)
    # the last four where the answer is no JSON, or not the specification's: the image may be fine all the same
    except (GoogleAuthError, RequestException, ValueError, KeyError, TypeError, AttributeError) as error:
        return Finding(remark=f"{image} was not inspected: its registry does not respond ({type(error).__name__}).")


def address(host: str) -> str:
    """Return where the API of a registry is."""
    return f"https://{host}"


def _look_into(image: str, session: AuthorizedSession, needs: Needs) -> Finding:
    host, _, rest = image.partition("/")
    name, _, digest = rest.partition("@")
    name, _, tag = name.partition(":")
    place = f"{address(host)}/v2/{name}"
    answer = session.get(
        f"{place}/manifests/{digest or tag}", headers={"Accept": ", ".join(_INDEXES + _MANIFESTS)}, timeout=_TIMEOUT
    )
    if answer.status_code == 404:
        return Finding(problem=f"--image {image} is not in its registry. Push it: docker push {image}")
    if answer.status_code != 200:
        return Finding(remark=f"{image} was not inspected: its registry answered {answer.status_code}.")
    manifest = answer.json()
    if "manifests" in manifest:
        fitting = [part for part in manifest["manifests"] if part["platform"]["architecture"] == ARCHITECTURE]
        if not fitting:
            return Finding(
                problem=_foreign(image, {part["platform"]["architecture"] for part in manifest["manifests"]})
            )
        answer = session.get(
            f"{place}/manifests/{fitting[0]['digest']}", headers={"Accept": ", ".join(_MANIFESTS)}, timeout=_TIMEOUT
        )
        manifest = answer.json()
    config = session.get(f"{place}/blobs/{manifest['config']['digest']}", timeout=_TIMEOUT).json()
    if config["architecture"] != ARCHITECTURE:
        return Finding(problem=_foreign(image, {config["architecture"]}))
    if not any(variable.startswith(f"{REVISION}=") for variable in config["config"].get("Env") or ()):
        return Finding(
            problem=f"--image {image} does not say that it holds Laurel (no variable {REVISION}). Build it with "
            "make image, or begin its Dockerfile with FROM such an image."
        )
    return Finding(problem=_lacking(image, config["config"], needs))


def _lacking(image: str, config: Any, needs: Needs) -> str | None:
    """Describe what an image lacks for its steps."""
    if needs.cuda and not any(variable.startswith(CUDA) for variable in config.get("Env") or ()):
        return (
            f"--image {image} is without CUDA, so the accelerators of its steps would be idle. Build one with "
            "make image-gpu, push it, and name it with --gpu-image."
        )
    held = (config.get("Labels") or {}).get(PACKAGES, "").split()
    if missing := [package for package in needs.packages if package not in held]:
        names = " ".join(missing)
        return (
            f"--image {image} does not say that it holds {' and '.join(missing)} (label {PACKAGES}), which the "
            f'parameters need. Build it with make image-gpu EXTRAS="{names}", or image in place of image-gpu.'
        )
    return None


def _foreign(image: str, architectures: set[str]) -> str:
    return (
        f"--image {image} is for {' and '.join(sorted(architectures))}, but Vertex AI's machines are {ARCHITECTURE}: "
        f"build it with docker build --platform linux/{ARCHITECTURE}"
    )
