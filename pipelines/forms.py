"""The forms that names must have before anything is contacted: those that lead elsewhere if they are wrong.

Each function returns a sentence that says what is wrong and how to mend it, or None. The service that gets the request
says what is wrong with an account, a network, a label or a schedule.
"""

import re
from urllib.parse import urlsplit

from laurel.params.file import shown

REGISTRY = "REGION-docker.pkg.dev/PROJECT/REPOSITORY/laurel-python:TAG"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def project(value: str | None) -> str | None:
    """Check a project's ID, with the domain before it where it has one."""
    if not value:
        return "--project is missing: name one with --project or GOOGLE_CLOUD_PROJECT. List yours: gcloud projects list"
    if not re.fullmatch(r"([a-z][a-z0-9.-]+\.[a-z]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]", value):
        return (
            f"--project is {shown(value)}, but a project's ID has 6 to 30 lower-case letters, digits and hyphens. "
            "List yours: gcloud projects list"
        )
    return None


def region(value: str | None) -> str | None:
    """Check a region, such as europe-west4; it becomes part of the address that credentials are sent to."""
    if not value:
        return "--region is missing: name one with --region or GOOGLE_CLOUD_REGION, e.g. --region europe-west4"
    if not re.fullmatch(r"[a-z]+-[a-z]+\d+", value):
        return (
            f"--region is {shown(value)}, but must be a region such as europe-west4. List: gcloud compute regions list"
        )
    return None


def bucket(value: str | None) -> str | None:
    """Check gs://BUCKET or gs://BUCKET/FOLDER."""
    if not value:
        return "--bucket is missing: where the steps' files go, e.g. --bucket gs://my-bucket/laurel"
    if not re.fullmatch(r"gs://[a-z0-9][a-z0-9._-]+(/[^/]+)*/?", value):
        return f"--bucket is {shown(value)}, but must be like gs://my-bucket/laurel. List: gcloud storage buckets list"
    return None


def image(value: str | None, *, vertex: bool) -> str | None:
    """Check an image's reference: where it can be pulled from, and that it stands for one build."""
    build = "Build and push one, or name one you have: --image"
    if not value:
        return f"--image is missing: what the steps run in. {build} {REGISTRY}"
    name, _, digest = value.partition("@")
    path, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        path, tag = name, ""
    if not re.fullmatch(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9][a-z0-9._-]*)*", path) or (
        digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    ):
        return f"--image is {shown(value)}, which is not the reference of an image. {build} {REGISTRY}"
    if vertex and not re.fullmatch(r"[a-z0-9-]+-docker\.pkg\.dev(/[^/]+){3,}|([a-z]+\.)?gcr\.io(/[^/]+){2,}", path):
        return (
            f"--image {value} lies in no registry that Vertex AI pulls from. "
            f"Push it to Artifact Registry: docker push {REGISTRY}"
        )
    if not digest and tag in ("", "latest"):
        return (
            f"--image {value} does not say which build: steps are cached by it. "
            "Give a digest (@sha256:...) or a tag other than latest."
        )
    return None


def cron(value: str, *, vertex: bool) -> str | None:
    """Check that a schedule has five fields, on Vertex AI with a time zone before them if wanted."""
    zone = r"((CRON_)?TZ=\S+\s+)?" if vertex else ""
    if re.fullmatch(rf"{zone}\S+(\s+\S+){{4}}", value.strip()):
        return None
    return (
        f"--schedule is {shown(value)}, but must have five fields: minute, hour, day of month, month, day of week, "
        "e.g. --schedule '0 3 * * 1' for Mondays at three."
    )


def host_of(url: str) -> str:
    """Return the host that a URL names; an empty text if it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # of brackets without an address
        return ""


def api_endpoint(value: str) -> str | None:
    """Check another address of the API: it is sent your credentials."""
    host = host_of(value if "://" in value else f"https://{value}")
    if not host or ("://" in value and not value.startswith(("http://", "https://"))):
        return f"--api-endpoint is {shown(value)}, but must be an address such as https://europe-west4-aiplatform.googleapis.com"
    if value.startswith("http://") and host not in LOOPBACK:
        return (
            f"--api-endpoint {value} would send your credentials in clear: use https://{value.removeprefix('http://')}"
        )
    return None
