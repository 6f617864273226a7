"""The environment of the steps: their variables and secrets, MLflow, and the chat models that they ask."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from laurel.components.step import RESPONSES
from laurel.errors import ParamsError
from laurel.params import Params
from laurel.params.judges import ChatSection
from laurel.permissions import KEYS, is_loopback, why_key_is_withheld
from laurel.pipelines import forms
from laurel.pipelines.machines import starts_server
from laurel.pipelines.options import Findings, Options
from laurel.secrets import PREFIX, REFERENCE

TRACKING_URI = "MLFLOW_TRACKING_URI"


def variables_of(
    options: Options, environment: Mapping[str, str], findings: Findings
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """Return the variables that every step gets, and those that Kubernetes takes from its secrets."""
    variables: dict[str, str] = {}
    in_cluster: dict[str, tuple[str, str]] = {}
    for name, reference in (findings.attempt(lambda: pairs_of("--secret", options.secrets)) or {}).items():
        if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            findings.check(
                "--secret: the name of a variable has capitals, digits and _, e.g. MLFLOW_TRACKING_PASSWORD=..."
            )
        elif options.vertex:
            findings.check(_secret_of_vertex(name, reference, variables))
        elif secret := re.fullmatch(r"([a-z0-9][a-z0-9.-]{0,252})/([A-Za-z0-9._-]{1,253})", reference):
            in_cluster[name] = (secret[1], secret[2])
        else:
            findings.check(
                f"--secret {name}: must name a Kubernetes secret and a key in it, e.g. {name}=mlflow/password"
            )
    findings.check(_tracking(environment.get(TRACKING_URI, ""), {*variables, *in_cluster}, variables, findings.remarks))
    return variables, in_cluster


def chat_models(
    options: Options, params: Params, environment: Mapping[str, str], named: set[str], findings: Findings
) -> dict[str, str]:
    """Check that the steps can reach the chat models that are asked; return what they need in their environment."""
    asked = params.annotate
    served = {server for voter in asked.all_voters if starts_server(voter) for server in voter.section.servers}
    for server in asked.servers:
        if server in served:
            continue  # the step itself starts it
        if is_loopback(forms.host_of(server)):
            findings.check(
                f"annotate.openai.base_url is {server}, which is an address of this machine: the steps cannot reach it."
            )
    reference = "projects/PROJECT/secrets/SECRET" if options.vertex else "SECRET/KEY"
    needing = {
        needed
        for voter in asked.all_voters
        if isinstance(voter.section, ChatSection)
        for needed in voter.section.keys_needed
    }
    for name, endpoint in sorted(needing):
        findings.check(why_key_is_withheld(name, endpoint, environment))
    for name in sorted({name for name, _ in needing}):
        if not {name, f"{PREFIX}{name}"} & named:
            findings.check(f"annotate.openai needs the key {name} in the steps: add --secret {name}={reference}")
    allowed = {KEYS: environment[KEYS]} if needing and environment.get(KEYS) else {}
    if not asked.keeps_responses:
        return {}
    if options.vertex:
        return {**allowed, RESPONSES: f"/gcs/{(options.bucket or '').removeprefix('gs://')}/responses"}
    findings.remarks.append(
        "the model's answers are kept only on the disk of the step: another attempt, or run, pays for them again."
    )
    return allowed


def _secret_of_vertex(name: str, reference: str, variables: dict[str, str]) -> str | None:
    full = reference if "/versions/" in reference else f"{reference}/versions/latest"
    if not re.fullmatch(REFERENCE, full):  # not shown, since it may be the secret itself
        return (
            f"--secret {name}: must be the name of a secret, not the secret itself: "
            f"{name}=projects/PROJECT/secrets/SECRET. "
            f"Make one: gcloud secrets create {name.lower().replace('_', '-')} --data-file=-"
        )
    variables[f"{PREFIX}{name}"] = full
    return None


def _tracking(uri: str, named: set[str], variables: dict[str, str], remarks: list[str]) -> str | None:
    """Give the steps the address of MLflow if they can reach it; return why not, if they cannot."""
    if {TRACKING_URI, f"{PREFIX}{TRACKING_URI}"} & named:
        return None
    if not uri:
        remarks.append(f"the run is not logged to MLflow: {TRACKING_URI} is not set.")
        return None
    if re.match(r"[^/]+://[^/]*@", uri):
        return (
            f"{TRACKING_URI} holds a password, and the pipeline is stored unencrypted: set it without the password, "
            "and add --secret MLFLOW_TRACKING_USERNAME=... --secret MLFLOW_TRACKING_PASSWORD=..."
        )
    if not uri.startswith(("http://", "https://")) or not (host := forms.host_of(uri)) or is_loopback(host):
        remarks.append(
            f"the run is not logged to MLflow: the steps cannot reach {TRACKING_URI}, which only works on this machine."
        )
    else:
        variables[TRACKING_URI] = uri
    return None


def pairs_of(option: str, values: Sequence[str]) -> dict[str, str]:
    """Read NAME=VALUE; a value may be a secret, so none is shown."""
    pairs = {}
    for value in values:
        name, sign, rest = value.partition("=")
        if not sign:
            raise ParamsError(f"{option} must be NAME=VALUE.")
        pairs[name] = rest
    return pairs
