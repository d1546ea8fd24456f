"""The secret that a planner's clients share with it."""

from __future__ import annotations

import hmac
from pathlib import Path

from jepa_planner_ros.types import PlannerError

_SHORTEST = 16


def read_token(path: Path) -> str:
    """The token in a file.

    Raises:
        PlannerError: there is none.
    """
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise PlannerError(f"the token cannot be read from {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise PlannerError(f"the token cannot be read from {path}: it is no text.") from error
    if not (token.isascii() and token.isprintable() and len(token) >= _SHORTEST):
        raise PlannerError(
            f"{path} holds no usable token: {_SHORTEST} or more ASCII characters on one line, for "
            "instance of 'openssl rand -hex 32'."
        )
    return token


def authorization(token: str) -> str:
    """What a client says that knows the token."""
    return f"Bearer {token}"


def knows(token: str, said: str) -> bool:
    """Whether a client that says this knows the token.

    The comparison takes the same time however much is right, so that nobody can guess bit by bit.
    """
    return hmac.compare_digest(said.encode(), authorization(token).encode())
