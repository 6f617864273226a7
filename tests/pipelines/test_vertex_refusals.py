"""`laurel pipeline submit` where Google Cloud refuses, does not answer, or is not there: one sentence, exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vertex_laurel import Laurel, submit
from vertex_server import VertexServer, error


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            error(429, "Quota exceeded: custom_model_training_nvidia_t4_gpus.", "RESOURCE_EXHAUSTED"),
            "over the quota: Quota exceeded: custom_model_training_nvidia_t4_gpus. Wait, ask for fewer",
        ),
        (
            error(403, "Permission aiplatform.pipelineJobs.create denied", "PERMISSION_DENIED"),
            "not allowed: Permission aiplatform.pipelineJobs.create denied. Submitting needs roles/aiplatform.user",
        ),
        (
            error(403, "Vertex AI API has not been used in project 1 before or it is disabled.", "PERMISSION_DENIED"),
            "gcloud services enable aiplatform.googleapis.com --project=demo-project",
        ),
        (error(404, "Project not found"), "not found: Project not found. Check --project demo-project"),
        (error(400, "Invalid image.", "INVALID_ARGUMENT"), "Vertex AI refused the request: Invalid image. To see it"),
        (error(401, "Bad token"), "the credentials are not accepted: Bad token. Log in again: gcloud auth"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_a_refusal_is_one_sentence(laurel: Laurel, google: VertexServer, answer: Any, sentence: str) -> None:
    google.says("create", answer)
    code, out, err = submit(laurel)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.splitlines()[-1].startswith("laurel: ")
    assert "Traceback" not in err
    assert len(google.of("create")) == (3 if answer[0] == 401 else 1), "only with a fresh token is it tried again"


def test_no_run_is_submitted_without_a_bucket(laurel: Laurel, google: VertexServer) -> None:
    google.says("bucket", error(404, "The specified bucket does not exist."))
    code, out, err = submit(laurel)
    assert (code, out) == (2, "")
    assert (
        "there is no bucket gs://demo-bucket. Make it: gcloud storage buckets create gs://demo-bucket "
        "--project=demo-project --location=europe-west4"
    ) in err
    assert google.of("create") == []


def test_an_unreadable_bucket_gives_a_warning(laurel: Laurel, google: VertexServer) -> None:
    """The steps run as another account, which may write to it."""
    google.says("bucket", error(403, "no storage.buckets.get"))
    code, _, err = submit(laurel)
    assert code == 0
    assert "note: no permission to look at the bucket gs://demo-bucket (storage.buckets.get), so its existence" in err


def test_bucket_in_another_region_warns(laurel: Laurel, google: VertexServer) -> None:
    google.says("bucket", (200, {"name": "demo-bucket", "location": "US-CENTRAL1"}))
    code, _, err = submit(laurel)
    assert code == 0
    assert "note: bucket demo-bucket lies in us-central1, the run in europe-west4" in err


def test_a_temporary_failure_is_retried_and_the_run_is_sent_once(laurel: Laurel, google: VertexServer) -> None:
    google.says("create", error(503, "try later"), (0, None), error(409, "already exists"))
    code, out, _ = submit(laurel)
    assert code == 0
    sent = google.of("create")
    assert len(sent) == 3
    (run,) = {request.query["pipelineJobId"][0] for request in sent}
    assert run in out


def test_no_answer(laurel: Laurel, google: VertexServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from laurel.pipelines import vertex

    monkeypatch.setattr(vertex, "PATIENCE", 0.5)
    google.says("create", error(503, "try later"))
    code, out, err = submit(laurel)
    assert (code, out) == (2, "")
    assert f"laurel: Vertex AI at {google.url} answers 503: try later. Try again later" in err
    google.says("create", (0, None))
    assert f"laurel: Vertex AI at {google.url} gives no answer (ConnectionError)." in submit(laurel)[2]


def test_no_credentials(laurel: Laurel, google: VertexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    code, out, err = submit(laurel)
    assert (code, out) == (2, "")
    assert "no credentials of Google Cloud: " in err
    assert err.rstrip().endswith("Log in: gcloud auth application-default login")
    assert google.received == []


def test_credentials_that_expired(laurel: Laurel, google: VertexServer) -> None:
    google.says("token", (400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}))
    code, out, err = submit(laurel)
    assert (code, out) == (2, "")
    assert "the credentials are not accepted: " in err
    assert "Log in again: gcloud auth application-default login" in err


@pytest.mark.parametrize("package", ["google.cloud.aiplatform_v1", "google.auth", "kfp"])
def test_a_package_that_is_not_installed(laurel: Laurel, package: str, without: Callable[[str], None]) -> None:
    without(package)
    code, out, err = submit(laurel)
    assert (code, out) == (2, "")
    assert "which is not installed: pip install 'laurel-rl[cloud]'" in err
