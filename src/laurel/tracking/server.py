"""The store of MLflow runs, a server or a database in the project, and the errors it raises."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from laurel.workspace import outside_dvc_copy

if TYPE_CHECKING:
    from mlflow import MlflowClient


URI = "MLFLOW_TRACKING_URI"
DATABASE = "mlflow.db"
ARTIFACTS = "mlartifacts"


def configure(project: Path) -> None:
    """Set where runs are logged: MLFLOW_TRACKING_URI, or a database in the project's directory.

    Queued DVC experiments also log to the project's database, not to that of DVC's temporary copy.
    """
    os.environ[URI] = os.environ.get(URI) or f"sqlite:///{outside_dvc_copy(project.resolve() / DATABASE)}"
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def connect(experiment: str) -> tuple[MlflowClient, str]:
    """Return a client and the id of an experiment, which is made by one process at a time.

    A server that does not answer is given up after two tries, within half a minute.
    """
    from filelock import FileLock

    client = open_store()
    database = _database()
    if database is None:
        return client, _experiment(client, experiment, None)
    with FileLock(_lock_of(database)):
        return client, _experiment(client, experiment, (database.parent / ARTIFACTS).as_uri())


def open_store() -> MlflowClient:
    """Return a client; a new database is set up by one process at a time."""
    from filelock import FileLock
    from mlflow import MlflowClient

    quiet()
    configure(Path.cwd())  # a stage may be called from Python, with no command line before it
    database = _database()
    if database is not None:
        with FileLock(_lock_of(database)):
            if _is_new(database):
                make_tables(database)
            _log_ahead(database)
    return MlflowClient(os.environ[URI])


def _database() -> Path | None:
    """Return the database that runs are logged to; None for a server."""
    uri = os.environ[URI]
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).resolve()


def _lock_of(database: Path) -> Path:
    return database.with_name(f".{database.name}.lock")


def _is_new(database: Path) -> bool:
    """Whether a database has no tables yet; False where MLflow's own message is better, as in `_log_ahead`."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
    return False


def make_tables(database: Path) -> None:
    """Make MLflow's tables in a new database, all or none of them.

    MLflow makes them in dozens of steps, and cannot continue those that Ctrl-C, a kill or a full disk has interrupted.
    """
    from mlflow import MlflowClient

    with TemporaryDirectory(prefix="laurel-", ignore_cleanup_errors=True) as scratch:
        source_file = Path(scratch) / DATABASE
        with _on_connect(_never_wait):  # for the disk, a thousand times: what is not whole is thrown away
            MlflowClient(f"sqlite:///{source_file}")
        with closing(sqlite3.connect(source_file)) as source, closing(sqlite3.connect(database)) as target:
            source.backup(target)


def _log_ahead(database: Path) -> None:
    """Use SQLite's write-ahead log: it waits for the disk at checkpoints, not at each of the 17 commits of an agent's
    run.

    A crash of the machine may lose the last commits, but never the database (sqlite.org/wal.html). The mode is stored
    in the file; the synchronous setting is per connection, and MLflow has no option for it.

    Raises:
        sqlite3.DatabaseError: the file is not a database, which would take MLflow 100 seconds to report.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    locked = sqlite3.OperationalError  # or no space, or no permission, for which MLflow's own message is better
    with suppress(locked), closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    if not event.contains(Engine, "connect", _wait_for_checkpoints_alone):
        event.listen(Engine, "connect", _wait_for_checkpoints_alone)


def _wait_for_checkpoints_alone(connection: Any, _: object) -> None:
    """Set up a new connection, of any database."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = NORMAL")


@contextmanager
def _on_connect(function: Callable[[Any, object], None]) -> Iterator[None]:
    """Have SQLAlchemy call a function with each connection that the block opens."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    event.listen(Engine, "connect", function)
    try:
        yield
    finally:
        event.remove(Engine, "connect", function)


def _never_wait(connection: Any, _: object) -> None:
    """Set up a new connection to a database that a crash of the machine may destroy."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def quiet() -> None:
    """Silence MLflow's messages, and shorten its timeouts for servers that do not answer."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow.store").setLevel(logging.WARNING)
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "12")
    os.environ.setdefault("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # it would print a password, too


def _experiment(client: MlflowClient, name: str, artifacts: str | None) -> str:
    found = client.get_experiment_by_name(name)
    return found.experiment_id if found else client.create_experiment(name, artifact_location=artifacts)


def explained(error: Exception) -> str:
    """Describe MLflow's address and error, without user and password."""
    uri = os.environ[URI]
    address = without_secrets(uri).partition("?")[0]
    reason = without_secrets(_first_line(error).replace(uri, address))
    return f"at {address} ({reason.rstrip('.')})"


def failures() -> tuple[type[Exception], ...]:
    """Exceptions of MLflow: refusals, failures of the database, network or disk, a missing driver."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, sqlite3.Error, OSError, ImportError


def without_secrets(text: str) -> str:
    """Leave user and password out of every URI in a text."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
