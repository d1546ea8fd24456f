"""The command line ``jepa-planner``."""


class CommandError(Exception):
    """A command cannot go on; the message tells the person at the terminal why and what to do."""
