"""This machine's settings of pip, as a pip.conf for a build in Docker.

    python3 .ci/pip_settings.py PORT >pip.conf     prints it
    python3 .ci/pip_settings.py PORT serve         serves the folders and files that it names, until it is ended

A folder of wheels or a file of constraints on this machine is not in the build; it is served to it at 127.0.0.1:PORT,
under its own path.
"""

import functools
import http.server
import os
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

FILES = ("constraint", "build-constraint", "requirement")
PLACES = ("find-links", "index-url", "extra-index-url", *FILES)


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


def local(place: str) -> Path | None:
    """Return the folder or file that a place is on this machine; None for a server."""
    parts = urlsplit(place)
    if parts.scheme in ("http", "https"):
        return None
    path = Path(unquote(parts.path) if parts.scheme == "file" else place).expanduser().absolute()
    return path if path.exists() else None


def served(found: dict[str, str]) -> list[Path]:
    """List what a build may read: an index's files lie beside it, by relative links."""
    places = [(option, path) for option in PLACES for place in found.get(option, "").split() if (path := local(place))]
    return [path if option in ("find-links", *FILES) else path.parent for option, path in places]


def pip_conf(found: dict[str, str], port: int) -> str:
    """Write settings with folders and files as addresses, and certificates where Debian keeps them."""
    lines = ["[global]"]
    for option, value in found.items():
        if option in PLACES:
            places = [(place, local(place)) for place in value.split()]
            value = " ".join(f"http://127.0.0.1:{port}{quote(str(path))}" if path else place for place, path in places)
        elif option == "cert":
            value = "/etc/ssl/certs/ca-certificates.crt"
        lines.append(f"{option} = {value}")
    return "\n".join(lines) + "\n"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves some folders and files and nothing beside them."""

    allowed: tuple[str, ...] = ()

    def send_head(self):
        asked = os.path.realpath(self.translate_path(self.path))
        if not any(asked == allowed or asked.startswith(f"{allowed}{os.sep}") for allowed in self.allowed):
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
    Handler.allowed = tuple(os.path.realpath(path) for path in served(found))
    handler = functools.partial(Handler, directory="/")
    http.server.ThreadingHTTPServer(("127.0.0.1", port), handler).serve_forever()


if __name__ == "__main__":
    main()
