"""The requests to Vertex AI and to a cluster as JSON values of their APIs; `--dry-run` prints these.

Without client libraries and network access.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from laurel.pipelines.template import Spec

CONSOLE = "https://console.cloud.google.com"
REQUEST = "laurel_request"
"""Label of a run by which another attempt at the same request finds it."""


@dataclass(frozen=True)
class Place:
    """The API location for a project's runs."""

    project: str
    region: str
    endpoint: str | None = None

    @property
    def parent(self) -> str:
        return f"projects/{self.project}/locations/{self.region}"

    @property
    def address(self) -> str:
        return self.endpoint or f"https://{self.region}-aiplatform.googleapis.com"

    def name(self, job: str) -> str:
        """Return the full name of a job, which may be given as that already."""
        return job if job.startswith("projects/") else f"{self.parent}/pipelineJobs/{job}"

    def page(self, job: str) -> str:
        """Return the console's page on a run, by its name or ID."""
        return self._page(f"locations/{self.region}/pipelines/runs/{job.rpartition('/')[2]}")

    def page_of_schedule(self, name: str) -> str:
        """Return the console's page on a schedule, by its name."""
        return self._page(f"locations/{self.region}/pipelines/schedules/{name.rpartition('/')[2]}")

    @property
    def runs(self) -> str:
        """The console's page with all runs."""
        return self._page("pipelines")

    def _page(self, path: str) -> str:
        return f"{CONSOLE}/vertex-ai/{path}?project={self.project}"


def job_request(
    spec: Spec,
    arguments: Mapping[str, Any],
    *,
    title: str,
    bucket: str,
    labels: Mapping[str, str],
    service_account: str | None = None,
    network: str | None = None,
) -> dict[str, Any]:
    """Return a PipelineJob as JSON values, as Vertex AI's REST API names them.

    A branch that fails does not stop the others: what they finish is cached for the next submission.
    """
    job = {
        "displayName": title,
        "labels": dict(labels),
        "pipelineSpec": spec,
        "runtimeConfig": {
            "gcsOutputDirectory": bucket.rstrip("/"),
            "parameterValues": dict(arguments),
            "failurePolicy": "PIPELINE_FAILURE_POLICY_FAIL_SLOW",
        },
        "serviceAccount": service_account,
        "network": network,
    }
    request = {key: value for key, value in job.items() if value is not None}
    return {**request, "labels": {**labels, REQUEST: digest_of(request)}}


def digest_of(request: Any) -> str:
    """Return a request's digest, which is the same wherever and whenever it is made."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]


def schedule_request(place: Place, job: Mapping[str, Any], cron: str) -> dict[str, Any]:
    """Return a Schedule as JSON values: one run at a time; missed runs are not made up for."""
    return {
        "displayName": job["displayName"],
        "cron": cron,
        "maxConcurrentRunCount": "1",
        "createPipelineJobRequest": {"parent": place.parent, "pipelineJob": dict(job)},
    }


def new_job_id(name: str) -> str:
    """Return an ID that no other job has: name, time, and a few random letters."""
    return f"{name}-{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


def platform_spec(spec: Spec, secrets: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return KFP's settings for Kubernetes: variables of every step from keys of Kubernetes secrets.

    Args:
        secrets: variable -> name of the secret and key in it.
    """
    references = [
        {
            "secretName": name,
            "secretNameParameter": {"runtimeValue": {"constant": name}},
            "keyToEnv": [{"secretKey": key, "envVar": variable}],
            "optional": False,
        }
        for variable, (name, key) in secrets.items()
    ]
    if not references:
        return {}
    executors = {executor: {"secretAsEnv": references} for executor in spec["deploymentSpec"]["executors"]}
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}}


def run_request(
    spec: Spec, platform: Mapping[str, Any], arguments: Mapping[str, Any], *, title: str, service_account: str | None
) -> dict[str, Any]:
    """Return a Run as JSON values, as KFP's API names them; its name distinguishes it from runs of other requests."""
    run = {
        "display_name": f"{title} {digest_of([spec, platform, arguments])[:8]}",
        "pipeline_spec": {"pipeline_spec": spec, "platform_spec": platform} if platform else spec,
        "runtime_config": {"parameters": dict(arguments)},
        "service_account": service_account,
    }
    return {key: value for key, value in run.items() if value is not None}


def recurring_request(run: Mapping[str, Any], cron: str) -> dict[str, Any]:
    """Return a RecurringRun as JSON values: one run at a time; missed runs are not made up for."""
    return {
        **run,
        "max_concurrency": 1,
        "mode": "ENABLE",
        "no_catchup": True,
        "trigger": {"cron_schedule": {"cron": kfp_cron(cron)}},
    }


def kfp_cron(cron: str) -> str:
    """Put seconds before the five fields, as KFP requires."""
    return f"0 {' '.join(cron.split())}"
