"""`laurel ui`: MLflow's pages, opened on the comparison of arms."""

from __future__ import annotations

import argparse
import errno
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from laurel.cli.command import Commands, add_command, whole
from laurel.console import say
from laurel.errors import LaurelError

HOST = "127.0.0.1"
VIEW = "laurel-arms"
"""Name of the view of an experiment that the link opens."""
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
"""Tag of an experiment in which MLflow's pages look for a view of that name."""
AGENTS = "tags.arm LIKE '%' AND tags.seed LIKE '%'"
"""MLflow's filter for runs of agents: runs of stages and trials lack one of these tags."""


def add(commands: Commands) -> None:
    """Add the command."""
    ui = add_command(commands, "ui", "Open MLflow's pages on the comparison of arms.", "laurel ui --port 5001")
    ui.add_argument(
        "--params", type=Path, default=Path("params.yaml"), metavar="FILE", help="params file of the project"
    )
    ui.add_argument("--port", type=whole(1, 65535), default=5000, metavar="N", help="default: 5000")
    ui.set_defaults(run=_ui)


def _ui(options: argparse.Namespace) -> int:
    from laurel.tracking.server import URI, configure, without_secrets

    configure(options.params.parent)
    uri = os.environ[URI]
    experiment = _experiment_name(options.params)
    if uri.startswith("http"):
        server = without_secrets(uri).rstrip("/")
        say(f"The runs are logged to a server. Compare the arms at\n{server}/{_route(experiment)}\n")
    else:
        _check_port(options.port)
        say(
            "MLflow starts within seconds; Ctrl-C stops it. Compare the arms at\n"
            f"http://{HOST}:{options.port}/{_route(experiment)}\n"
        )
        command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--port", str(options.port)]
        os.execv(sys.executable, command)  # noqa: S606  the server takes this process's place, and its Ctrl-C
    return 0


def _check_port(port: int) -> None:
    """Raise LaurelError where another program uses the port, or where the port may not be used."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like the server: a port just released is free
        try:
            listener.bind((HOST, port))
        except OSError as error:
            problem = "is in use by another program" if error.errno == errno.EADDRINUSE else f"cannot be used ({error})"
            free = port + 1 if 1024 <= port < 65535 else 5001
            raise LaurelError(f"Port {port} {problem}. Choose another one: laurel ui --port {free}") from None


def _experiment_name(params: Path) -> str:
    """Return the name of the experiment to which runs are logged.

    Raises:
        ParamsError: the parameters are not allowed.
    """
    from laurel.params import TrackingParams, load_params

    return load_params(params).tracking.experiment if params.exists() else TrackingParams().experiment


def _route(experiment: str) -> str:
    """Return the page of an experiment's arms as a path of MLflow's pages; of all experiments where it has no runs."""
    from laurel.tracking.server import explained, failures

    fails_with = failures()
    try:
        experiment_id = _prepare(experiment)
    except fails_with as error:
        sys.stderr.write(f"laurel: the comparison view could not be created {explained(error)}.\n")
        return ""
    if experiment_id is None:
        return ""
    query = {"workflowType": "machine_learning", "compareRunsMode": "CHART", "viewStateShareKey": VIEW}
    return f"#/experiments/{experiment_id}/runs?{urlencode(query)}"


def _prepare(experiment: str) -> str | None:
    """Give an experiment the view of its arms; return its id, None where the experiment does not exist yet."""
    from laurel.tracking.server import open_store

    client = open_store()
    existing = client.get_experiment_by_name(experiment)
    if existing is None:
        return None
    value = json.dumps(view())
    if existing.tags.get(VIEW_TAG) != value:
        client.set_experiment_tag(existing.experiment_id, VIEW_TAG, value)
    return str(existing.experiment_id)


def view() -> dict[str, Any]:
    """Return the view of arms as MLflow's pages keep one: agents' runs, grouped by arm, environment and training.

    The grouping is needed because an experiment holds the agents of all runs of a project, and averages over different
    parameters are meaningless.
    """
    from laurel.tracking.run import TRAINING

    keys = [{"mode": "tag", "groupByData": name} for name in ("arm", "env", TRAINING)]
    return {
        "searchFilter": AGENTS,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": keys},
        "useGroupedValuesInCharts": True,
        "runsHiddenMode": "SHOW_ALL",
        "chartsSearchFilter": "return|success",
    }
