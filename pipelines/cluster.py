"""Kubeflow Pipelines on a cluster through KFP's client: submit, schedule, watch and cancel runs.

Every failure of the client becomes one sentence.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kfp_server_api
import requests
import urllib3
import yaml
from kfp import client

from laurel.errors import LaurelError
from laurel.pipelines.follow import ENDED, SAME_AGAIN, Progress, Step, UnreachableError, step_of

TOKEN = "KFP_TOKEN"  # noqa: S105  the name of a variable
"""Environment variable with a bearer token for the cluster's API, if it requires one."""
TIMEOUT = 10
OLDEST = (2, 14)
"""Version of Kubeflow Pipelines that collects the outputs of a loop, as the pipeline needs."""


class ClusterError(LaurelError):
    """An error of the cluster, with a fix."""


class Cluster:
    """KFP's API at an address, e.g. of `kubectl port-forward`."""

    def __init__(self, host: str, namespace: str | None) -> None:
        """Connect.

        Raises:
            UnreachableError: nothing answers there.
            ClusterError: the server is not KFP, or requires a token.
        """
        self.host, self.namespace = host.rstrip("/"), namespace
        token = os.environ.get(TOKEN)
        try:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            answer = requests.get(f"{self.host}/apis/v2beta1/healthz", headers=headers, timeout=TIMEOUT)
        except requests.RequestException as error:
            raise UnreachableError(self._unreachable(type(error).__name__)) from None
        if answer.status_code in (401, 403):
            raise ClusterError(f"{self.host} refused the request ({answer.status_code}): set {TOKEN} to your token.")
        if not answer.ok or "json" not in answer.headers.get("Content-Type", ""):
            raise ClusterError(
                f"{self.host} is not an API of Kubeflow Pipelines (it answered {answer.status_code}). Give the "
                "address of its API, e.g. of: kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80"
            )
        with self._explained():
            self._client = client.Client(host=self.host, namespace=namespace or "kubeflow", existing_token=token)
        self._version = str(_field(answer, "tag_name") or "")

    def check_version(self) -> str | None:
        """Look at the version of Kubeflow Pipelines; return a remark where the server does not say it.

        Raises:
            ClusterError: it is too old.
        """
        needed = ".".join(map(str, OLDEST))
        if not (match := re.match(r"\D*(\d+)\.(\d+)", self._version)):
            return f"{self.host} does not say its version; Kubeflow Pipelines {needed} or later is needed."
        if (int(match[1]), int(match[2])) < OLDEST:
            raise ClusterError(
                f"{self.host} is Kubeflow Pipelines {self._version}, which cannot collect the outputs of a loop. "
                f"Version {needed} or later is needed."
            )
        return None

    def running(self, request: Mapping[str, Any]) -> str | None:
        """Return the ID of a run that the same request has started and that has not ended.

        Raises:
            ClusterError, UnreachableError: runs cannot be listed.
        """
        with self._explained():
            listed = self._client.list_runs(
                namespace=self.namespace, filter=_named(request["display_name"]), sort_by="created_at desc"
            )
        return next((str(run.run_id) for run in listed.runs or [] if _state(run.state) not in ENDED), None)

    def submit(self, request: Mapping[str, Any], experiment: str) -> str:
        """Start a run; return its ID. If the response is lost, the run is looked up by its name.

        Raises:
            ClusterError: it was refused.
            UnreachableError: no answer.
        """
        try:
            with self._explained(), _package(request) as file:
                created = self._client.create_run_from_pipeline_package(
                    str(file),
                    arguments=request["runtime_config"]["parameters"],
                    run_name=request["display_name"],
                    experiment_name=experiment,
                    namespace=self.namespace,
                    service_account=request.get("service_account"),
                )
        except UnreachableError as error:
            try:
                active = self.running(request)
            except LaurelError:
                raise UnreachableError(f"{error} It is not known whether the run began. {SAME_AGAIN}") from None
            if active is None:
                raise UnreachableError(f"{error} The run does not exist yet. {SAME_AGAIN}") from None
            return active
        return str(created.run_id)

    def schedule(self, request: Mapping[str, Any], experiment: str) -> str:
        """Schedule runs; return the recurring run's ID. If the response is lost, it is looked up.

        Raises:
            ClusterError, UnreachableError: as `submit`.
        """
        try:
            return self._schedule(request, experiment)
        except UnreachableError:
            if existing := self.scheduled(request):
                return existing
            raise

    def scheduled(self, request: Mapping[str, Any]) -> str | None:
        """Return the ID of an active recurring run that the same request has made.

        Raises:
            ClusterError, UnreachableError: recurring runs cannot be listed.
        """
        with self._explained():
            listed = self._client.list_recurring_runs(
                namespace=self.namespace, filter=_named(request["display_name"], key="name")
            )
        wanted = request["trigger"]["cron_schedule"]["cron"]
        for recurring in listed.recurring_runs or []:
            cron = recurring.trigger.cron_schedule if recurring.trigger else None
            if cron and cron.cron == wanted and (recurring.status or "ENABLED") == "ENABLED":
                return str(recurring.recurring_run_id)
        return None

    def _schedule(self, request: Mapping[str, Any], experiment: str) -> str:
        with self._explained(), _package(request) as file:
            parent = self._client.create_experiment(experiment, namespace=self.namespace)
            created = self._client.create_recurring_run(
                parent.experiment_id,
                request["display_name"],
                cron_expression=request["trigger"]["cron_schedule"]["cron"],
                no_catchup=request["no_catchup"],
                params=request["runtime_config"]["parameters"],
                pipeline_package_path=str(file),
                service_account=request.get("service_account"),
            )
        return str(created.recurring_run_id)

    def look(self, run: str) -> Progress:
        """Return a run's state.

        Raises:
            UnreachableError: no answer this time.
            ClusterError: there is no such run, or it may not be looked at.
        """
        with self._explained(looking=True):
            details = self._client.get_run(run)
        tasks = (details.run_details.task_details if details.run_details else None) or []
        steps: dict[str, Step] = {}
        for task in tasks:
            if (kind := step_of(task.display_name or "")) is None:
                continue
            count = sum(step.kind == kind for step in steps.values())
            reason = task.error.message if task.error else ""
            steps[f"{kind} #{count + 1}" if count else kind] = Step(kind, _state(task.state), reason or "")
        return Progress(_state(details.state), steps, (details.error.message if details.error else "") or "")

    def cancel(self, run: str) -> None:
        """Cancel a run.

        Raises:
            ClusterError, UnreachableError: as `look`.
        """
        with self._explained():
            self._client.terminate_run(run)

    def page(self, run: str) -> str:
        """Return the user interface's page on a run."""
        return f"{self.host}/#/runs/details/{run}"

    def _unreachable(self, error: str) -> str:
        return (
            f"Kubeflow Pipelines at {self.host} does not respond ({error}). Check --host, or forward its port: "
            "kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80"
        )

    @contextlib.contextmanager
    def _explained(self, *, looking: bool = False) -> Iterator[None]:
        """Turn the client's errors into sentences, and hide its prints and warnings from the user.

        Args:
            looking: whether a running run is polled, so that temporary errors count as no answer.
        """
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                yield
        except kfp_server_api.ApiException as error:
            reason = _message(error)
            match error.status:
                case 401 | 403:
                    raise ClusterError(
                        f"{self.host} refused the request: {reason} Set {TOKEN}, or check --namespace."
                    ) from None
                case 404:
                    raise ClusterError(f"{self.host} has no such run: {reason}") from None
                case int(status) if status >= 500 or (looking and status in (408, 429)):
                    raise UnreachableError(f"{self.host} answers {status}: {reason}") from None
                case status:
                    raise ClusterError(f"{self.host} answers {status}: {reason}") from None
        except (urllib3.exceptions.HTTPError, TimeoutError) as error:
            raise UnreachableError(self._unreachable(type(error).__name__)) from None


@contextlib.contextmanager
def _package(request: Mapping[str, Any]) -> Iterator[Path]:
    """Write the pipeline to a file, as KFP's client requires."""
    content = request["pipeline_spec"]
    documents = [content["pipeline_spec"], content["platform_spec"]] if "platform_spec" in content else [content]
    with tempfile.TemporaryDirectory(prefix="laurel-") as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")
        yield file


def _message(error: kfp_server_api.ApiException) -> str:
    """Return the API's own message, in one line."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body or "")
    try:
        content = yaml.safe_load(body)
    except yaml.YAMLError:
        content = None
    text = content.get("message") or content.get("error") if isinstance(content, dict) else body
    line = " ".join(str(text or error.reason or "no reason given").split())[:400]
    return line if line.endswith(".") else f"{line}."


def _named(name: str, key: str = "display_name") -> str:
    """Return KFP's filter by a name."""
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": key, "stringValue": name}]})


def _field(answer: requests.Response, name: str) -> Any:
    try:
        content = answer.json()
    except ValueError:
        return None
    return content.get(name) if isinstance(content, dict) else None


def _state(name: str | None) -> str:
    return (name or "pending").lower().replace("_", " ")
