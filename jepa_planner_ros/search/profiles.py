"""Search settings from YAML: the profiles in ``config/search/``, and a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from jepa_planner_ros.search.registry import METHODS
from jepa_planner_ros.share import share_directory
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
        return settings_from(yaml.safe_load(content))
    except (ArithmeticError, RecursionError, TypeError, ValueError, yaml.YAMLError) as error:
        raise ProfileError(f"search = '{name}' cannot be used: {error}") from error


def settings_from(entries: Any) -> SearchSettings:
    """Settings from what a profile's file holds: ``method``, and values for its settings.

    Raises:
        ProfileError: the method or an entry is unknown.
        ValueError: a value is out of its range.
    """
    if not isinstance(entries, Mapping) or entries.get("method") not in METHODS:
        raise ProfileError(f"needs an entry 'method', one of: {', '.join(METHODS)}.")
    given = {name: value for name, value in entries.items() if name != "method"}
    if isinstance(given.get("energy"), Mapping):
        given["energy"] = _record(Energy, "energy.", given["energy"])
    if isinstance(given.get("guard"), Mapping):
        given["guard"] = _record(Guard, "guard.", given["guard"])
    return _record(METHODS[entries["method"]].settings, "", given)


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


def _record(kind: type[Any], prefix: str, entries: Mapping[str, Any]) -> Any:
    known = {field.name: field.type for field in fields(kind)}
    if unknown := [name for name in entries if name not in known]:
        raise ProfileError(
            f"entry {prefix}{unknown[0]} is unknown; {kind.__name__} has {', '.join(known)}."
        )
    return kind(**{name: _frozen(value) for name, value in entries.items()})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _directory() -> Path:
    return share_directory() / "config" / "search"
