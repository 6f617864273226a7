"""Names of processes that hold a claim, and whether such a process has died.

On Linux a process is identified by the machine's boot id, its number and its start time, because numbers are reused.
Elsewhere, and for other machines, nothing is known: `has_died` is False.
"""

from __future__ import annotations

import os
import socket
import uuid
from pathlib import Path

_PROC = Path("/proc")


def this_owner() -> str:
    """Return a new, unique name for an owner in this process: host, process, when it began, and a random part."""
    return "|".join((_host(), str(os.getpid()), _began(os.getpid()) or "", uuid.uuid4().hex))


def has_died(owner: str) -> bool:
    """Whether the process of this name is known to have ended."""
    host, _, rest = owner.partition("|")
    pid, _, began = rest.partition("|")
    began = began.partition("|")[0]
    return bool(began) and pid.isdigit() and host == _host() and _began(int(pid)) != began


def _host() -> str:
    """Name this boot of the machine and its process-id namespace: each container has a namespace of its own."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{(_PROC / 'self/ns/pid').readlink().name}"
    except OSError:
        return socket.gethostname().replace("|", "")


def _began(pid: int) -> str | None:
    """Return when a process began, in ticks of the machine's clock; None where it has ended or nothing is known."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # its name is in brackets, and may hold anything
    return None if state in ("Z", "X") else fields[18]
