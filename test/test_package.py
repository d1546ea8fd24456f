"""The package as a whole: its interfaces, its metadata, and who may import whom."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest

import jepa_planner_ros
from jepa_planner_ros.share import share_directory

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jepa_planner_ros"

# Inner to outer. A module imports from its own row and from the rows above it.
LAYERS = (
    {"__init__", "geometry", "photograph", "share", "spelling", "types"},
    {"world_model"},
    {"search"},
    {"planning"},
    {"robot"},
    {"control"},
    {"serving"},
    {"ros"},
    {"replay", "report", "sim", "training", "watch"},
    {"cli", "faults"},
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

# Where a library may be imported, as prefixes of module names.
HOMES = {
    "aiohttp": ("watch.server",),
    "google": ("serving.wire.",),
    "grpc": ("serving.",),
    "mujoco": ("sim.",),
    "ray": ("serving.",),
    "rclpy": (
        "cli.",
        "faults.campaign",
        "faults.relay",
        "replay.player",
        "report.view_node",
        "ros.",
        "sim.parameters",
        "sim.sim_node",
        "watch.listener",
    ),
}

# What a GPU cluster without ROS imports, and what it need not have installed.
CORE = ("world_model", "search", "planning", "serving", "control")
ABSENT_ON_A_CLUSTER = (
    *("rclpy", "jepa_planner_msgs", "mujoco", "PIL"),
    *("matplotlib", "psutil", "rich", "jinja2"),
)


def modules() -> Iterator[tuple[str, list[str]]]:
    """Yield each module's name below the package (``ros.images``) and what it imports."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        yield module, list(imports(module, ast.parse(path.read_text())))


def imports(module: str, tree: ast.Module) -> Iterator[str]:
    """Yield the absolute name of everything that a module imports, at any depth of its code."""
    parents = ["jepa_planner_ros", *module.split(".")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = parents[: len(parents) - node.level + 1] if node.level else []
            origin = origin + ([node.module] if node.module else [])
            yield from (".".join([*origin, alias.name]) for alias in node.names)


def test_inner_layers_import_no_outer_ones() -> None:
    offences = []
    for module, imported in modules():
        own = RANK[module.split(".")[0]]
        for name in imported:
            if name.startswith("jepa_planner_ros."):
                layer = name.split(".")[1]
                if RANK.get(layer, 0) > own:  # not a layer: a name of the package itself
                    offences.append(f"{module} imports {name}")
    assert not offences


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_only_where_it_belongs(library: str) -> None:
    users = [
        module
        for module, imported in modules()
        if any(name == library or name.startswith(f"{library}.") for name in imported)
    ]
    assert users, f"nothing imports {library}: the table is out of date"
    assert [user for user in users if not user.startswith(HOMES[library])] == []


def test_the_core_does_without_ros_simulation_and_report() -> None:
    script = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({ABSENT_ON_A_CLUSTER}))\n"
        f"for name in {CORE}: importlib.import_module('jepa_planner_ros.' + name)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )

    assert result.returncode == 0, result.stderr


def test_a_new_sub_goal_asks_for_the_nodes_own_parameters() -> None:
    from jepa_planner_msgs.msg import SubGoal

    sub_goal = SubGoal()
    assert sub_goal.close_gripper_from == -1
    assert sub_goal.energy_threshold == 0.0
    assert sub_goal.step_budget == 0
    assert sub_goal.image_path == ""


def test_outcomes_keep_their_numbers() -> None:
    from jepa_planner_msgs.action import ReachGoal

    result = ReachGoal.Result
    outcomes = (
        result.REACHED,
        result.BUDGET_SPENT,
        result.TIMED_OUT,
        result.CANCELLED,
        result.ABORTED,
    )
    assert outcomes == (1, 2, 3, 4, 5)
    assert result().outcome == 0, "a result that nobody filled in claims no outcome"


INTERFACES = sorted(
    path for kind in ("action", "msg", "srv") for path in (ROOT / "msg" / kind).iterdir()
)


@pytest.mark.parametrize("path", INTERFACES, ids=lambda path: path.name)
def test_every_field_of_an_interface_is_commented(path: Path) -> None:
    uncommented = []
    commented = False
    for line in path.read_text().splitlines():
        is_comment = line.startswith("#")
        if line and line != "---" and not is_comment and not commented:
            uncommented.append(line)
        commented = is_comment
    assert not uncommented


@pytest.mark.parametrize("path", INTERFACES, ids=lambda path: path.name)
def test_every_interface_is_built(path: Path) -> None:
    listed = (ROOT / "msg/CMakeLists.txt").read_text()
    assert f'"{path.relative_to(ROOT / "msg")}"' in listed


@pytest.mark.parametrize("manifest", ["package.xml", "msg/package.xml"])
def test_manifests_carry_the_version_of_the_package(manifest: str) -> None:
    package = ElementTree.parse(ROOT / manifest).getroot()
    assert package.get("format") == "3"
    assert package.findtext("version") == jepa_planner_ros.__version__
    assert package.findtext("license") == "Apache-2.0"


def test_the_root_manifest_names_what_the_interfaces_need() -> None:
    def names(manifest: str, *tags: str) -> set[str]:
        package = ElementTree.parse(ROOT / manifest).getroot()
        return {element.text or "" for tag in tags for element in package.iter(tag)}

    assert names("msg/package.xml", "depend") <= names("package.xml", "depend")


def test_every_dependency_is_pinned() -> None:
    def normalised(requirement: str) -> str:
        return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~!; ]", requirement)[0]).lower()

    pinned = {
        normalised(line)
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    wanted = {normalised(requirement) for requirement in requires("jepa_planner_ros") or ()}
    if not wanted:
        pytest.skip("installed by colcon, which keeps no list of requirements")
    assert wanted - pinned == set()


def test_configuration_and_launch_files_are_found() -> None:
    share = share_directory()
    assert list((share / "config").glob("*.yaml"))
    assert list((share / "launch").glob("*.launch.py"))
