"""Virtual environments for peers, created once, outside of the repository. Independent of the peers themselves."""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path


def peer_python(name: str, *installs: tuple[str, ...]) -> Path:
    """Return the interpreter of a peer's environment, with packages installed by one call of pip after the other.

    It is in $XDG_CACHE_HOME/laurel-benchmarks (default: ~/.cache); its name includes the installed packages.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "laurel-benchmarks"
    digest = hashlib.sha256(repr((sys.version_info[:2], installs)).encode()).hexdigest()[:8]
    folder = cache / f"{name}-{digest}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        for packages in installs:
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
            subprocess.run(pip, check=True)  # noqa: S603
        ready.touch()
    return python
