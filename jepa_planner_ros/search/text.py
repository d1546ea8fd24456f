"""Search settings as text, so that a recorded plan can be searched for again."""

from __future__ import annotations

import json
from dataclasses import asdict

from jepa_planner_ros.types import SearchSettings


def search_to_json(settings: SearchSettings) -> str:
    """Settings as a JSON object, complete: names may come to mean other settings."""
    return json.dumps(asdict(settings))


def search_from_json(text: str) -> SearchSettings:
    """The settings that `search_to_json` has written.

    Raises:
        ValueError: it is no such text, or one of a version with other settings.
    """
    try:
        return SearchSettings(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the search settings {text!r} cannot be read: {error}") from error
