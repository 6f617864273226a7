"""Importing this reads which plug-ins are installed: once, in the server that all worker processes are forked from."""

from laurel.envs import ENTRY_POINTS
from laurel.plugins import installed

installed(ENTRY_POINTS)
