"""Files that ROS 2 expects under the installation prefix; all else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup

SHARE = "share/jepa_planner_ros"


def files(directory: str, pattern: str) -> list[str]:
    """List the matching files, relative to the repository's root."""
    return [str(path) for path in sorted(Path(directory).glob(pattern))]


setup(
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/jepa_planner_ros"]),
        (SHARE, ["package.xml"]),
        (f"{SHARE}/config", [*files("config", "*.yaml"), *files("config", "*.conf")]),
        (f"{SHARE}/config/search", files("config/search", "*.yaml")),
        (f"{SHARE}/launch", files("launch", "*.launch.py")),
        ("lib/jepa_planner_ros", ["scripts/planner_node", "scripts/sim_node"]),
    ]
)
