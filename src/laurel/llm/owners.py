"""Names of processes that hold claims, and whether such a process has died.

On Linux a process is identified by the machine's boot id, its process id and its start time, because process ids are
reused. On other systems, and for other machines, this is unknown, and `has_died` is False.
"""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

_PROC = Path("/proc")


def this_owner() -> str:
    """Return a new, unique name for an owner in this process: host, process id, start time, and a random part."""
    return "|".join((_host(), str(os.getpid()), _began(os.getpid()) or "", uuid.uuid4().hex))


def has_died(owner: str) -> bool:
    """Whether the process of this name is known to have ended."""
    host, _, rest = owner.partition("|")
    pid, _, began = rest.partition("|")
    began = began.partition("|")[0]
    return bool(began) and pid.isdigit() and host == _host() and _began(int(pid)) != began


def _host() -> str:
    """Return the id of this boot of the machine with the process-id namespace, which differs between containers."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{(_PROC / 'self/ns/pid').readlink().name}"
    except OSError:
        return socket.gethostname().replace("|", "")


def _began(pid: int) -> str | None:
    """Return the start time of a process, in clock ticks; None if it has ended or this is unknown."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # its name is in brackets, and may contain anything
    return None if state in ("Z", "X") else fields[18]
