"""The command line ``jepa-planner``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command and the module that carries it out.

    The module has ``add_arguments(parser)``, which also describes the command, and
    ``run(args) -> int``, which returns the exit code. It is imported only when its command is
    called, so that no command waits for, or needs, what only another one uses. ``args`` holds its
    own options and ``command_line``, which repeats the call. A module that has ``COMMANDS`` in
    place of ``run`` is a group of commands.
    """

    name: str
    summary: str
    module: str


class CommandError(Exception):
    """A command cannot go on; the message tells the person at the terminal why and what to do."""
