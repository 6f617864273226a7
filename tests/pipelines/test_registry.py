"""Checks of an image before a run is submitted, against a fake Artifact Registry."""

from __future__ import annotations

import json

import pytest
from google.auth.credentials import AnonymousCredentials
from vertex_server import Answer, VertexServer, error, image_config

from laurel.cli.app import main
from laurel.pipelines.images import Needs
from laurel.pipelines.registry import look_into
from tiny_project import Project

IMAGE = "europe-west4-docker.pkg.dev/demo-project/laurel/laurel-python:1"
DIGEST = f"sha256:{'ab' * 32}"
ARM = {"digest": "sha256:1", "platform": {"architecture": "arm64", "os": "linux"}}
AMD = {"digest": "sha256:2", "platform": {"architecture": "amd64", "os": "linux"}}


@pytest.mark.parametrize("image", [IMAGE, f"{IMAGE}@{DIGEST}", IMAGE.replace(":1", f"@{DIGEST}")])
def test_an_image_with_laurel_is_fine(google: VertexServer, image: str) -> None:
    found = look_into(image, AnonymousCredentials())
    assert (found.problem, found.remark) == (None, None)
    (asked,) = google.of("manifest")
    wanted = DIGEST if DIGEST in image else "1"
    assert asked.path == f"/v2/demo-project/laurel/laurel-python/manifests/{wanted}"
    assert "application/vnd.oci.image.manifest.v1+json" in asked.headers["accept"]
    assert google.of("blob")[0].path == "/v2/demo-project/laurel/laurel-python/blobs/sha256:c0"


@pytest.mark.parametrize(
    ("route", "answer", "said"),
    [
        ("manifest", error(404, "manifest unknown"), "is not in its registry. Push it: docker push"),
        ("manifest", (200, {"manifests": [ARM]}), "is for arm64, but Vertex AI's machines are amd64: build it with"),
        ("blob", image_config("arm64"), "is for arm64, but"),
        ("blob", image_config(variables=()), "does not say that it holds Laurel (no variable LAUREL_REVISION)."),
        ("blob", image_config(variables=["MY_LAUREL_REVISION=1"]), "does not say that it holds Laurel"),
    ],
)
def test_unsuitable_images_are_refused_with_the_reason(
    google: VertexServer, route: str, answer: Answer, said: str
) -> None:
    google.says(route, answer)
    found = look_into(IMAGE, AnonymousCredentials())
    assert found.problem is not None
    assert found.problem.startswith(f"--image {IMAGE} {said}")
    assert found.remark is None


@pytest.mark.parametrize(
    ("variables", "labels", "needs", "said"),
    [
        ([], {}, Needs(cuda=True), "is without CUDA, so the accelerators of its steps would be idle."),
        (["CUDA_VERSION=13"], {}, Needs(cuda=True), None),
        ([], {}, Needs(packages=("peft",)), "does not say that it holds peft (label laurel.packages)"),
        ([], {"laurel.packages": "bitsandbytes peft"}, Needs(packages=("peft",)), None),
    ],
)
def test_what_the_steps_need_of_an_image(
    google: VertexServer, variables: list[str], labels: dict[str, str], needs: Needs, said: str | None
) -> None:
    status, config = image_config(variables=["LAUREL_REVISION=1", *variables])
    config["config"]["Labels"] = labels
    google.says("blob", (status, config))
    problem = look_into(IMAGE, AnonymousCredentials(), needs).problem
    assert problem is None if said is None else problem.startswith(f"--image {IMAGE} {said}")


def test_of_several_architectures_the_one_that_runs_is_looked_at(google: VertexServer) -> None:
    google.says("manifest", (200, {"manifests": [ARM, AMD]}), (200, {"config": {"digest": "sha256:c0"}}))
    assert look_into(IMAGE, AnonymousCredentials()).problem is None
    assert google.of("manifest")[1].path.endswith("/manifests/sha256:2")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error(403, "denied"), "its registry answered 403."),
        ((0, None), "its registry does not respond (ConnectionError)."),
        ((200, ["?"]), "its registry does not respond (TypeError)."),
        ((200, {}), "its registry does not respond (KeyError)."),
    ],
)
def test_what_cannot_be_checked_in_the_registry_is_reported(google: VertexServer, answer: Answer, said: str) -> None:
    google.says("manifest", answer)
    found = look_into(IMAGE, AnonymousCredentials())
    assert found.problem is None
    assert found.remark == f"{IMAGE} was not inspected: {said}"


def test_nothing_is_sent_with_an_image_without_the_package(
    google: VertexServer, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    project = Project.create(tmp_path_factory.mktemp("p"), {"env.backend": "gymnasium"})
    monkeypatch.chdir(project.path)
    google.says("blob", image_config(variables=()))
    where = ["--project", "demo-project", "--region", "europe-west4", "--bucket", "gs://demo-bucket"]
    assert main(["pipeline", "submit", *where, "--image", IMAGE, "--api-endpoint", google.url]) == 2
    assert f"laurel: --image {IMAGE} does not say that it holds Laurel" in capsys.readouterr().err
    assert google.of("create") == []
    token = {request.headers.get("authorization") for request in google.of("blob")}
    assert token == {"Bearer loopback-token"}
    assert json.dumps([request.route for request in google.received]).count("create") == 0


def test_nothing_is_sent_with_accelerators_for_an_image_without_cuda(
    google: VertexServer, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    project = Project.create(tmp_path_factory.mktemp("p"), {"env.backend": "gymnasium"})
    monkeypatch.chdir(project.path)
    google.says("blob", image_config())
    where = ["--project", "demo-project", "--region", "europe-west4", "--bucket", "gs://demo-bucket"]
    given = [*where, "--image", IMAGE, "--gpu-image", IMAGE, "--api-endpoint", google.url]
    assert main(["pipeline", "submit", *given, "--gpu", "L4"]) == 2
    assert f"laurel: --image {IMAGE} is without CUDA" in capsys.readouterr().err
    assert google.of("create") == []
