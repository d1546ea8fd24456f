"""Search settings as text, so that a recorded plan can be searched for again."""

from __future__ import annotations

import json
from dataclasses import asdict

from jepa_planner_ros.search.profiles import settings_from
from jepa_planner_ros.search.registry import METHODS
from jepa_planner_ros.types import SearchSettings


def search_to_json(settings: SearchSettings) -> str:
    """Settings as a JSON object with the entries of a profile, complete.

    Names would not do: a later version may mean other settings by them.
    """
    method = next(name for name, known in METHODS.items() if known.settings is type(settings))
    return json.dumps({"method": method, **asdict(settings)})


def search_from_json(text: str) -> SearchSettings:
    """The settings that `search_to_json` has written.

    Raises:
        ValueError: it is no such text, or one of a version with other settings.
    """
    try:
        return settings_from(json.loads(text))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the search settings {text!r} cannot be read: {error}") from error
