"""Search settings from YAML: the profiles in ``config/search/``, and a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from jepa_planner_ros.search.entries import read_record
from jepa_planner_ros.search.registry import METHODS
from jepa_planner_ros.share import share_directory
from jepa_planner_ros.spelling import did_you_mean
from jepa_planner_ros.types import Energy, Guard, SearchSettings

DEFAULT_PROFILE = "fast"


class ProfileError(ValueError):
    """A search profile cannot be used; the message says which entry of which file, and why."""


def profile_names() -> tuple[str, ...]:
    """The profiles that come with the package, in alphabetical order."""
    return tuple(sorted(path.stem for path in _directory().glob("*.yaml")))


def load_profile(name: str) -> SearchSettings:
    """The settings of a profile.

    Args:
        name: of a profile that comes with the package, or the path of a YAML file like theirs.

    Raises:
        ProfileError: there is no such profile, or it holds what no search takes.
    """
    try:
        own = name.endswith(".yaml")
        path = Path(name).expanduser() if own else _directory() / f"{name}.yaml"
        content = path.read_bytes()
    except (OSError, RuntimeError, ValueError):
        # Without a home, and with a null character, a path is none.
        raise ProfileError(
            f"search = '{name}' is unknown; it must be one of: {', '.join(profile_names())}; or "
            "the path of a .yaml file."
        ) from None
    try:
        return settings_from(_parsed(content))
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ProfileError(f"search = '{name}' cannot be used: {error}") from error


def settings_from(entries: Any) -> SearchSettings:
    """Settings from what a profile's file holds: ``method``, and values for its settings.

    Raises:
        ValueError: the method or an entry is unknown, or a value is of another kind or out of its
            range.
    """
    methods = f"one of: {', '.join(METHODS)}."
    if not isinstance(entries, Mapping) or "method" not in entries:
        raise ValueError(f"the entry 'method' is missing; it must be {methods}")
    method = entries["method"]
    if not isinstance(method, str) or method not in METHODS:
        meant = did_you_mean(str(method), METHODS)
        raise ValueError(f"method '{method}' is unknown; it must be {methods}{meant}")
    given = {name: value for name, value in entries.items() if name != "method"}
    settings: SearchSettings = read_record(METHODS[method].settings, given)
    return settings


def in_words(settings: SearchSettings) -> str:
    """One line with every setting, for a person."""
    method = next(name for name, known in METHODS.items() if known.settings is type(settings))
    values = []
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Energy):
            value = f"{value.distance} {value.steps}"
        elif isinstance(value, Guard):
            value = f"beyond a disagreement of {value.disagreement:g}"
        values.append(f"{field.name.replace('_', ' ')} {value}")
    return f"{method.replace('_', ' ')}; {', '.join(values)}"


def _parsed(content: bytes) -> Any:
    try:
        return yaml.safe_load(content)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{error.problem}.") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{str(error).splitlines()[0]}.") from error
    except RecursionError as error:
        raise ValueError("its entries are nested too deeply.") from error


def _directory() -> Path:
    return share_directory() / "config" / "search"
