"""This machine's settings of pip, as a pip.conf for a build in Docker.

    python3 .ci/pip_settings.py PORT >pip.conf     prints it
    python3 .ci/pip_settings.py PORT serve         serves the folders of wheels that it names, until it is ended

A folder of wheels on this machine is not in the build; it is served to it at 127.0.0.1:PORT, under its own path.
"""

import functools
import http.server
import os
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

PLACES = ("find-links", "index-url", "extra-index-url")


def settings() -> dict[str, str]:
    """Return option -> value; what the environment says goes before files."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()  # noqa: S603
    found = {}
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        section, _, option = name.strip().partition(".")
        if section in ("global", "install", ":env:") and option != "config-file":
            found[option.lstrip(".")] = " ".join(shlex.split(value)).replace("\\n", " ")
    return found


def folder(place: str) -> Path | None:
    """Return the folder that a place of packages is on this machine; None for a server."""
    parts = urlsplit(place)
    if parts.scheme in ("http", "https"):
        return None
    path = Path(unquote(parts.path) if parts.scheme == "file" else place).expanduser().absolute()
    return path if path.is_dir() else None


def served(found: dict[str, str]) -> list[Path]:
    """List the folders that a build may read: an index's files lie beside it, by relative links."""
    folders = [
        (option, path) for option in PLACES for place in found.get(option, "").split() if (path := folder(place))
    ]
    return [path if option == "find-links" else path.parent for option, path in folders]


def pip_conf(found: dict[str, str], port: int) -> str:
    """Write settings with folders as addresses, and certificates where Debian keeps them."""
    lines = ["[global]"]
    for option, value in found.items():
        if option in PLACES:
            places = [(place, folder(place)) for place in value.split()]
            value = " ".join(f"http://127.0.0.1:{port}{quote(str(path))}" if path else place for place, path in places)
        elif option == "cert":
            value = "/etc/ssl/certs/ca-certificates.crt"
        lines.append(f"{option} = {value}")
    return "\n".join(lines) + "\n"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves some folders and nothing beside them."""

    folders: tuple[str, ...] = ()

    def send_head(self):
        asked = os.path.realpath(self.translate_path(self.path))
        if not any(asked == allowed or asked.startswith(f"{allowed}{os.sep}") for allowed in self.folders):
            self.send_error(404)
            return None
        return super().send_head()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def main() -> None:
    """Print pip.conf, or serve what it names."""
    port, found = int(sys.argv[1]), settings()
    if sys.argv[2:] != ["serve"]:
        sys.stdout.write(pip_conf(found, port))
        return
    Handler.folders = tuple(os.path.realpath(path) for path in served(found))
    handler = functools.partial(Handler, directory="/")
    http.server.ThreadingHTTPServer(("127.0.0.1", port), handler).serve_forever()


if __name__ == "__main__":
    main()
