"""Vertex AI: checks the bucket; submits, schedules, watches and cancels runs.

Uses the API client below `aiplatform.PipelineJob`, because that class creates a missing bucket unasked, calls the
Resource Manager, and takes 43 seconds to fail without a network. Every API error becomes one sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any
from urllib.parse import quote

import google.auth
import google.cloud.aiplatform_v1 as aiplatform_v1  # so a package that is missing is named; "from" would not
import google.cloud.storage as storage
from google.api_core import exceptions as api
from google.api_core.client_options import ClientOptions
from google.api_core.retry import Retry, if_exception_type
from google.auth import exceptions as auth
from google.protobuf import json_format
from requests import RequestException

from laurel.errors import LaurelError
from laurel.pipelines.follow import ENDED, SAME_AGAIN, Progress, Step, UnreachableError, step_of
from laurel.pipelines.images import Needs
from laurel.pipelines.registry import look_into
from laurel.pipelines.request import CONSOLE, REQUEST, Place

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
LOGIN = "gcloud auth application-default login"
TIMEOUT = 60.0
"""Seconds that one request may take."""
PATIENCE = 30.0
"""Seconds for which an unanswered request is retried."""
_TRANSIENT = (api.ServerError, auth.TransportError, RequestException)


def _retry() -> Retry:
    """Return the retry policy for unanswered requests."""
    return Retry(if_exception_type(*_TRANSIENT), initial=1.0, maximum=8.0, timeout=PATIENCE)


class VertexError(LaurelError):
    """An error of Google Cloud, with a fix."""


class Vertex:
    """Vertex AI in one project and region, with the user's own credentials."""

    def __init__(self, place: Place) -> None:
        """Find credentials.

        Raises:
            VertexError: no credentials are found.
        """
        self.place = place
        try:
            self._credentials, _ = google.auth.default(scopes=[SCOPE])
        except auth.GoogleAuthError as error:
            raise VertexError(f"no credentials of Google Cloud: {_first_line(error)} Log in: {LOGIN}") from None

    @property
    def _options(self) -> dict[str, Any]:
        options = ClientOptions(api_endpoint=self.place.address)
        return {"credentials": self._credentials, "transport": "rest", "client_options": options}

    @cached_property
    def _jobs(self) -> aiplatform_v1.PipelineServiceClient:
        return aiplatform_v1.PipelineServiceClient(**self._options)

    @cached_property
    def _schedules(self) -> aiplatform_v1.ScheduleServiceClient:
        return aiplatform_v1.ScheduleServiceClient(**self._options)

    def check_bucket(self, bucket: str) -> str | None:
        """Check the bucket; return a remark on its location or on why it could not be checked, if any.

        Raises:
            VertexError: there is no such bucket.
        """
        name = bucket.removeprefix("gs://").partition("/")[0]
        with _explained(self.place, bucket=name):
            client = storage.Client(project=self.place.project, credentials=self._credentials)
            try:
                actual = client.get_bucket(name, timeout=10, retry=_retry())
            except api.Forbidden:  # the steps read and write as their service account, who may all the same
                return (
                    f"no permission to look at the bucket gs://{name} (storage.buckets.get), so its existence and "
                    "region were not checked."
                )
        location = (actual.location or "").lower()
        pair_of_regions = re.fullmatch(r"[a-z]+\d", location)
        if location and not pair_of_regions and not self.place.region.startswith(location):
            return f"bucket {name} lies in {location}, the run in {self.place.region}: traffic between them costs."
        return None

    def check_image(self, image: str, needs: Needs) -> str | None:
        """Check an image; return a remark if that is not possible.

        Raises:
            VertexError: it is not there, holds no Laurel, lacks what it needs, or is for other machines.
        """
        inspected = look_into(image, self._credentials, needs)
        if inspected.problem:
            raise VertexError(inspected.problem)
        return inspected.remark

    def submit(self, job: dict[str, Any], job_id: str) -> str:
        """Start a run; return its full name. If the response is lost, the run is looked up by its ID.

        Raises:
            VertexError: it was refused.
            UnreachableError: no answer; the sentence says what is known of the run.
        """
        message = aiplatform_v1.PipelineJob()
        json_format.ParseDict(job, message._pb)
        try:
            with _explained(self.place):
                try:
                    created = self._jobs.create_pipeline_job(
                        parent=self.place.parent,
                        pipeline_job=message,
                        pipeline_job_id=job_id,
                        timeout=TIMEOUT,
                        retry=_retry(),
                    )
                except api.Conflict:  # an attempt whose answer was lost had arrived; only we have this ID
                    return self.place.name(job_id)
        except UnreachableError as error:
            return self._found_after(job_id, error)
        return str(created.name)

    def _found_after(self, job_id: str, error: UnreachableError) -> str:
        """Return the name of a run whose creation got no response, if it was created nevertheless."""
        try:
            with _explained(self.place):
                job = self._jobs.get_pipeline_job(name=self.place.name(job_id), timeout=TIMEOUT, retry=_retry())
        except UnreachableError:
            raise UnreachableError(f"{error} It is not known whether the run {job_id} began: {SAME_AGAIN}") from None
        except VertexError:
            raise UnreachableError(f"{error} The run {job_id} does not exist yet. {SAME_AGAIN}") from None
        return str(job.name)

    def running(self, job: Mapping[str, Any]) -> str | None:
        """Return the ID of a run that the same request has started and that has not ended.

        Raises:
            VertexError, UnreachableError: runs cannot be listed.
        """
        with _explained(self.place):
            listed = self._jobs.list_pipeline_jobs(
                aiplatform_v1.ListPipelineJobsRequest(
                    parent=self.place.parent, filter=f'labels.{REQUEST}="{job["labels"][REQUEST]}"'
                ),
                timeout=TIMEOUT,
                retry=_retry(),
            )
            going = [str(candidate.name) for candidate in listed if _state(candidate.state.name) not in ENDED]
        return going[0].rpartition("/")[2] if going else None

    def schedule(self, schedule: dict[str, Any]) -> str:
        """Schedule runs; return the schedule's full name. If the response is lost, it is looked up.

        Raises:
            VertexError, UnreachableError: as `submit`.
        """
        message = aiplatform_v1.Schedule()
        json_format.ParseDict(schedule, message._pb)
        try:
            with _explained(self.place):
                created = self._schedules.create_schedule(parent=self.place.parent, schedule=message, timeout=TIMEOUT)
        except UnreachableError:
            if existing := self.scheduled(schedule):
                return existing
            raise
        return str(created.name)

    def scheduled(self, schedule: Mapping[str, Any]) -> str | None:
        """Return the full name of an active schedule that the same request has made.

        Raises:
            VertexError, UnreachableError: schedules cannot be listed.
        """
        wanted = schedule["cron"], schedule["createPipelineJobRequest"]["pipelineJob"]["labels"][REQUEST]
        with _explained(self.place):
            request = aiplatform_v1.ListSchedulesRequest(parent=self.place.parent, filter='state="ACTIVE"')
            for candidate in self._schedules.list_schedules(request, timeout=TIMEOUT, retry=_retry()):
                if wanted == (candidate.cron, candidate.create_pipeline_job_request.pipeline_job.labels.get(REQUEST)):
                    return str(candidate.name)
        return None

    def look(self, job: str) -> Progress:
        """Return a run's state.

        Raises:
            UnreachableError: no answer this time.
            VertexError: there is no such run, or it may not be looked at.
        """
        with _explained(self.place, job=job):
            state = self._jobs.get_pipeline_job(name=self.place.name(job), timeout=TIMEOUT, retry=None)
        details = sorted(state.job_detail.task_details, key=lambda task: task.task_id)
        steps: dict[str, Step] = {}
        for task in details:
            if (kind := step_of(task.task_name)) is None:
                continue
            count = sum(step.kind == kind for step in steps.values())
            name = f"{kind} #{count + 1}" if count else kind
            steps[name] = Step(kind, _state(task.state.name), _one_line(task.error.message), self._log(task))
        return Progress(_state(state.state.name), steps, _one_line(state.error.message))

    def _log(self, task: aiplatform_v1.PipelineTaskDetail) -> str:
        job = task.executor_detail.container_detail.main_job
        if not job:
            return ""
        query = quote(f'resource.labels.job_id="{job.rpartition("/")[2]}"', safe="")
        return f"{CONSOLE}/logs/query;query={query}?project={self.place.project}"

    def cancel(self, job: str) -> None:
        """Cancel a run.

        Raises:
            VertexError: there is no such run, or it may not be cancelled, or has ended.
        """
        with _explained(self.place, job=job):
            self._jobs.cancel_pipeline_job(name=self.place.name(job), timeout=TIMEOUT)


def _state(name: str) -> str:
    """Turn PIPELINE_STATE_RUNNING or RUNNING into running."""
    return name.removeprefix("PIPELINE_STATE_").removeprefix("STATE_").lower().replace("_", " ")


@contextmanager
def _explained(place: Place, *, bucket: str | None = None, job: str | None = None) -> Iterator[None]:
    """Turn the clients' exceptions into one sentence with a fix."""
    try:
        yield
    except api.RetryError as error:
        raise UnreachableError(_unreachable(place, bucket, error.cause or error)) from None
    except api.GoogleAPICallError as error:
        if isinstance(error, api.ServerError) or (job and error.code in (408, 429)):  # polling too often, not the quota
            raise UnreachableError(_unreachable(place, bucket, error)) from None
        raise VertexError(_refusal(place, error, bucket, job)) from None
    except auth.RefreshError as error:
        raise VertexError(f"the credentials are not accepted: {_first_line(error)} Log in again: {LOGIN}") from None
    except (auth.TransportError, RequestException, json_format.ParseError) as error:
        # the last where what answers is not the API, but a gateway's page
        raise UnreachableError(_unreachable(place, bucket, error)) from None


def _refusal(place: Place, error: api.GoogleAPICallError, bucket: str | None, job: str | None) -> str:
    """Return what the API refused, and how to fix it."""
    says = _message(error)
    project = place.project
    match error.code:
        case 404 if bucket:
            return (
                f"there is no bucket gs://{bucket}. "
                f"Make it: gcloud storage buckets create gs://{bucket} --project={project} --location={place.region}"
            )
        case 404 if job:
            return f"there is no job {job} in {place.parent}. List: {place.runs}"
        case 404:
            return f"not found: {says} Check --project {project} and --region {place.region}: gcloud projects list"
        case 403 if "SERVICE_DISABLED" in says or "has not been used" in says or "is disabled" in says:
            return (
                f"the API of Vertex AI is off in {project}. "
                f"Switch it on: gcloud services enable aiplatform.googleapis.com --project={project}"
            )
        case 403:
            return (
                f"not allowed: {says} Submitting needs roles/aiplatform.user in {project}, and "
                "roles/iam.serviceAccountUser on the service account."
            )
        case 401:
            return f"the credentials are not accepted: {says} Log in again: {LOGIN}"
        case 429:
            return (
                f"over the quota: {says} Wait, ask for fewer or other accelerators, take another --region, or "
                f"raise it: {CONSOLE}/iam-admin/quotas?project={project}"
            )
        case 400:
            return f"Vertex AI refused the request: {says}{'' if job else ' To see it, add --dry-run=full'}"
        case code:
            return f"Vertex AI answers {code or 'an error'}: {says}"


def _unreachable(place: Place, bucket: str | None, error: BaseException) -> str:
    if isinstance(error, api.GoogleAPICallError):
        problem = f"answers {error.code}: {_message(error)}"
    else:
        problem = f"gives no answer ({type(error).__name__})."
    service = f"Cloud Storage (gs://{bucket})" if bucket else f"Vertex AI at {place.address}"
    return f"{service} {problem} Try again later; check the network and --region {place.region}."


def _message(error: api.GoogleAPICallError) -> str:
    """Return the API's message, in one line: without the request's URL, cut where it is long, with a full stop."""
    text = re.sub(r"^(GET|POST|DELETE|PATCH|PUT) \S+: ", "", str(error.message or ""))
    with suppress(ValueError, KeyError, TypeError):
        text = json.loads(text)["error"]["message"]
    line = _one_line(text) or type(error).__name__
    return line if line.endswith((".", "!", "?")) else f"{line}."


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 400 else f"{line[:397]}..."


def _first_line(error: Exception) -> str:
    line = _one_line(str(error.args[0] if error.args else error).split("\n")[0])
    return line if line.endswith(".") else f"{line}."
