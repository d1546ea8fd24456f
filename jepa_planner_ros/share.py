"""Where the package's configuration and launch files are."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = "jepa_planner_ros"


def share_directory() -> Path:
    """Find the directory that holds ``config/``, ``launch/`` and ``package.xml``.

    In a checkout that is its root. pip and colcon put these files under
    ``PREFIX/share/jepa_planner_ros``, where ``PREFIX`` is a directory above the installed package.

    Returns:
        The directory, absolute.

    Raises:
        FileNotFoundError: The package was copied somewhere without its files.
    """
    package = Path(__file__).absolute().parent
    checkout = package.parent
    candidates = [checkout, *(prefix / "share" / _PACKAGE for prefix in package.parents)]
    for candidate in candidates:
        if (candidate / "package.xml").is_file():
            return candidate
    raise FileNotFoundError(
        f"The configuration of {_PACKAGE} is neither beside {package} nor in share/{_PACKAGE} "
        "under a directory above it: install the package with pip or colcon instead of copying it."
    )
