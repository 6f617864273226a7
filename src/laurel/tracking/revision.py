"""The commit that runs are made with."""

from __future__ import annotations

import os
import re
import subprocess


def git_sha() -> str | None:
    """Return the commit of the working directory, with "+" where files differ from it; None outside git.

    In an image, LAUREL_REVISION names the commit that it was built from; its working directory does not.
    """
    if revision := _of_image():
        return f"{revision[1][:12]}{'+' if revision[2] else ''}"
    return _git("describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*")


def commit() -> str | None:
    """Return the commit of `git_sha` as a phrase, with its date if known; None outside git."""
    sha, day = git_sha(), None if _of_image() else _git("show", "--no-patch", "--format=%cs", "HEAD")
    return f"commit {sha}{f' of {day}' if day else ''}" if sha else None


def _of_image() -> re.Match[str] | None:
    return re.fullmatch("([0-9a-f]{40})(-dirty)?", os.environ.get("LAUREL_REVISION", ""))


def _git(*arguments: str) -> str | None:
    """Return git's answer about the working directory; None without one."""
    try:
        result = subprocess.run(("git", *arguments), capture_output=True, text=True, timeout=10, check=False)  # noqa: S603, S607
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None
