"""The owner of a host process, seen from the host: a connection, and a lifeline.

The other side is `jepa_planner_ros.serving.host_process`. Standard input is the lifeline: when the
owner closes it, or dies in any way, the host tidies up, and the whole session ends.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from jepa_planner_ros.serving import session
from jepa_planner_ros.types import PlannerError

# For what the host leaves behind elsewhere, s.
_TIDYING_S = 15.0


@contextmanager
def owner() -> Iterator[tuple[Connection[Any, Any], Path, ExitStack]]:
    """The connection to the owner, the directory that will be removed in the end, and the tidying.

    The tidying is closed, in another thread, when the owner has let go and before the session ends.
    What goes wrong in the block is sent to the owner as a `PlannerError`. Does not return before
    the owner lets go.
    """
    descriptor, directory = int(sys.argv[1]), Path(sys.argv[2])
    os.set_inheritable(descriptor, False)
    connection: Connection[Any, Any] = Connection(descriptor)
    tidying = ExitStack()
    lifeline = threading.Thread(target=_end_with_owner, args=(directory, tidying))
    lifeline.start()
    try:
        yield connection, directory, tidying
    except (EOFError, BrokenPipeError):
        pass  # The owner has let go; the lifeline ends this process.
    except PlannerError as error:
        connection.send(error)
    except Exception as error:  # Whatever it is, the owner must hear of it.
        connection.send(PlannerError(f"Ray could not be started: {type(error).__name__}: {error}"))
    lifeline.join()


def _end_with_owner(directory: Path, tidying: ExitStack) -> None:
    sys.stdin.buffer.read()
    # Nobody is left who would end a host that waits for a cluster which is lost.
    last_work = threading.Thread(target=tidying.close, daemon=True)
    last_work.start()
    last_work.join(_TIDYING_S)
    # Ray ends a process that finds its daemons dead, so Ray must be out of this one first.
    os.execv(sys.executable, [sys.executable, "-IS", session.__file__, str(directory)])
