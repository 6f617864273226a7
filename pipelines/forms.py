"""Validates the syntax of projects, regions, buckets, images and schedules, without network access.

Each function returns a sentence that says what is wrong and which command fixes it, or None. Whether the thing exists
is not checked here.
"""

import re
from urllib.parse import urlsplit

from laurel.params.file import shown
from laurel.permissions import is_loopback

REGISTRY = "REGION-docker.pkg.dev/PROJECT/REPOSITORY/laurel-python:TAG"


def project(value: str | None) -> str | None:
    """Check a project's ID, with the domain before it where it has one."""
    if not value:
        return "--project is missing: name one with --project or GOOGLE_CLOUD_PROJECT. List yours: gcloud projects list"
    if value.isdigit():
        return f"--project {value} is a project's number; find its ID: gcloud projects describe {value}"
    if not re.fullmatch(r"([a-z][a-z0-9.-]+\.[a-z]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]", value):
        return (
            f"--project is {shown(value)}, but a project's ID has 6 to 30 lower-case letters, digits and hyphens. "
            "List yours: gcloud projects list"
        )
    return None


def region(value: str | None) -> str | None:
    """Check a region, such as europe-west4."""
    if not value:
        return "--region is missing: name one with --region or GOOGLE_CLOUD_REGION, e.g. --region europe-west4"
    if re.fullmatch(r"[a-z]+-[a-z]+\d+-[a-z]", value):
        return f"--region {value} is a zone; its region is --region {value[:-2]}"
    if not re.fullmatch(r"[a-z]+-[a-z]+\d+", value):
        return (
            f"--region is {shown(value)}, but must be a region such as europe-west4. List: gcloud compute regions list"
        )
    return None


def bucket(value: str | None) -> str | None:
    """Check gs://BUCKET or gs://BUCKET/FOLDER by the rules for names of buckets."""
    if not value:
        return "--bucket is missing: where the steps' files go, e.g. --bucket gs://my-bucket/laurel"
    if not value.startswith("gs://"):
        return f"--bucket is {shown(value)}, but must begin with gs://, e.g. --bucket gs://my-bucket/laurel"
    name, _, folder = value.removeprefix("gs://").partition("/")
    parts = name.split(".")
    well_formed = re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", name) and all(0 < len(p) <= 63 for p in parts)
    if not well_formed or re.fullmatch(r"\d+\.\d+\.\d+\.\d+", name) or name.startswith("goog") or "google" in name:
        return (
            f"--bucket names {shown(name)}, but a bucket's name has 3 to 63 lower-case letters, digits, - and _, "
            "begins and ends with a letter or digit, and has no google in it. List yours: gcloud storage buckets list"
        )
    if any(not char.isprintable() or char in "#[]*?" for char in folder) or "//" in folder:
        return f"--bucket has the folder {shown(folder)}, but it must be plain, e.g. --bucket gs://{name}/laurel"
    return None


def job(value: str, region: str) -> str | None:
    """Check the ID of a run, or its full name, whose region is that of the API that is asked."""
    name = re.fullmatch(r"projects/[^/]+/locations/([^/]+)/(pipelineJobs|schedules)/([^/]+)", value)
    if name and name[2] == "schedules":
        return f"{value} is a schedule, not a run: pause or delete it on its page, which submit printed."
    if name and name[1] != region:
        return f"{value} is a run in {name[1]}: add --region {name[1]}"
    if re.fullmatch(r"[a-z][a-z0-9-]{0,127}", name[3] if name else value):
        return None
    return f"JOB is {shown(value)}, but must be what submit printed after job, e.g. laurel-20260131120000-1a2b"


def image(value: str | None, *, vertex: bool) -> str | None:
    """Check an image's reference: it must be complete, and identify one build."""
    build = "Build and push one, or name one you have: --image"
    if not value:
        return f"--image is missing: the image that the steps run in. {build} {REGISTRY}"
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
            f"--image {value} is not in a registry that Vertex AI can pull from. "
            f"Push it to Artifact Registry: docker push {REGISTRY}"
        )
    if not digest and tag in ("", "latest"):
        return (
            f"--image {value} does not identify one build, by which steps are cached. "
            "Give a digest (@sha256:...) or a tag other than latest."
        )
    return None


def service_account(value: str) -> str | None:
    """Check the e-mail address of a service account."""
    if re.fullmatch(r"[a-z0-9-]+@([a-z0-9-]+\.)*gserviceaccount\.com", value):
        return None
    return (
        f"--service-account is {shown(value)}, but must be NAME@PROJECT.iam.gserviceaccount.com. "
        "List yours: gcloud iam service-accounts list"
    )


def network(value: str) -> str | None:
    """Check the full name of a network, whose project is a number."""
    if re.fullmatch(r"projects/\d+/global/networks/[a-z]([a-z0-9-]{0,61}[a-z0-9])?", value):
        return None
    return (
        f"--network is {shown(value)}, but must be projects/NUMBER/global/networks/NAME. "
        "The number: gcloud projects describe PROJECT --format='value(projectNumber)'"
    )


def cron(value: str, *, vertex: bool) -> str | None:
    """Check that a schedule has five fields, on Vertex AI with a time zone before them if wanted.

    Values of fields are checked by the server.
    """
    fields = value.split()
    if vertex and fields and re.fullmatch(r"(CRON_)?TZ=[A-Za-z]+(/[A-Za-z0-9_+-]+)*", fields[0]):
        fields = fields[1:]
    if len(fields) == 5:
        return None
    return (
        f"--schedule is {shown(value)}, but must have five fields: minute, hour, day of month, month, day of week, "
        "e.g. --schedule '0 3 * * 1' for Mondays at three."
    )


def host(value: str) -> str | None:
    """Check the address of a cluster's Kubeflow Pipelines."""
    if re.fullmatch(r"https?://[^/@\s]+(/\S*)?", value):
        return None
    return "--host must be the address of Kubeflow Pipelines, e.g. http://localhost:8080, without a password."


def host_of(url: str) -> str:
    """Return the host that a URL names; an empty text if it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # of brackets without an address
        return ""


def api_endpoint(value: str) -> str | None:
    """Check another address of the API: it is sent your credentials."""
    plain = value.startswith("http://")
    host = host_of(value if "://" in value else f"https://{value}")
    if not host or ("://" in value and not value.startswith(("http://", "https://"))):
        return f"--api-endpoint is {shown(value)}, but must be an address such as https://europe-west4-aiplatform.googleapis.com"
    if plain and not is_loopback(host):
        return (
            f"--api-endpoint {value} would send your credentials unencrypted: use "
            f"https://{value.removeprefix('http://')}"
        )
    return None
