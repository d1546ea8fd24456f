"""Every documented command is run, or named as what it takes; the reference is that of the code.

A block of commands is preceded by a comment: ``run`` has it run here, ``test: file::test`` names a
test that does what it says, and ``needs: ...`` says what is missing here. Whatever the comment, the
words are checked against what takes them.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from jepa_planner_ros.cli.main import COMMANDS as REGISTERED
from jepa_planner_ros.cli.main import build_parser
from jepa_planner_ros.cli.reference import reference

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PATIENCE = 120.0

NEEDS = (
    "Meta's checkpoint",
    "a fresh machine",
    "a recording",
    "a running planner node",
    "an installed ROS 2",
    "another computer",
    "hardware",
    "minutes",
)
BLOCK = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:jepa-planner|ros2 (?:service call|run|launch))\s[^`]*)`")
OPTION = re.compile(r"(?<!\S)--[a-z-]+")
BY_HAND = "test_documentation.py::test_the_nodes_by_hand_take_a_photograph_and_reach_it"


@dataclass(frozen=True)
class Block:
    """Commands of a page, and the comment before them."""

    page: str
    mark: str
    commands: tuple[str, ...]


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for mark, language, content in BLOCK.findall(page.read_text()):
            if language == "bash":
                lines = content.replace("\\\n", " ").splitlines()
                commands = tuple(part for line in lines for part in _single(line))
                yield Block(page.name, mark, commands)


def _single(line: str) -> Iterator[str]:
    """The commands of a line, without its comment."""
    for part in re.sub(r"(^|\s)#.*", "", line).split(" && "):
        if part.strip():
            yield part.strip().removeprefix(".venv/bin/")


BLOCKS = tuple(blocks())


COMMANDS = tuple(dict.fromkeys((one.page, text) for one in BLOCKS for text in one.commands))
MENTIONED = tuple(
    dict.fromkeys(
        (page.name, " ".join(text.split()))
        for page in PAGES
        for text in INLINE.findall(re.sub(BLOCK, "", page.read_text()))
    )
)
"""Commands within sentences, which may leave out what does not matter there."""


def test_the_reference_is_that_of_the_code() -> None:
    written = (ROOT / "docs" / "reference.md").read_text()
    assert written == reference(), (
        "run: python -m jepa_planner_ros.cli.reference > docs/reference.md"
    )


def test_every_option_is_explained_and_says_what_it_takes() -> None:
    options = re.findall(r"^\| `(--[^`]*)` \| (.*) \|$", reference(), re.MULTILINE)
    assert len(options) > 90
    for option, meaning in options:
        assert meaning, option
        assert not meaning.startswith("default"), option
        assert " " in option or "default" not in meaning, f"{option} has no metavar"


def test_every_page_is_found_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for page in PAGES[1:]:
        assert f"(docs/{page.name})" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_stand_in_blocks_of_their_own(page: Path) -> None:
    outside = re.sub(BLOCK, "", page.read_text())
    assert re.findall(r"^ {4,}(?:make|ros2|jepa-planner|pip|git|\.venv)\b.*", outside, re.M) == []


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}: {block.commands[0]}")
def test_every_block_is_run_or_says_why_not(block: Block, tmp_path: Path) -> None:
    kind, _, what = block.mark.partition(": ")
    if kind == "needs":
        assert what in NEEDS
    elif kind == "test":
        file, _, name = what.partition("::")
        tree = ast.parse((Path(__file__).parent / file).read_text())
        assert name in {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}
    else:
        assert kind == "run", "give the block a comment: run, test or needs"
        for command in block.commands:
            subprocess.run(called(command), check=True, cwd=tmp_path, timeout=PATIENCE)


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_every_command_is_one_that_exists(page: str, command: str) -> None:
    words = shlex.split(os.path.expandvars(command))
    match words:
        case ["jepa-planner", *arguments]:
            if "--help" not in arguments:
                build_parser(arguments).parse_args(arguments)
        case ["python" | "python3", script, *_]:
            assert (ROOT / script).exists()
        case ["make", target, *_]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
        case ["ros2", "launch", "jepa_planner_ros", file, *arguments]:
            _check_launch(file, [one.split(":=")[0] for one in arguments if ":=" in one])
        case ["ros2", "run", "jepa_planner_ros", program, *_]:
            assert (ROOT / "scripts" / program).exists()
        case ["ros2", "service", "call", _, kind, values]:
            _check_message(kind, "Request", values)
        case ["ros2", "action", "send_goal", _, kind, values, *_]:
            file = re.fullmatch(r"\$\(cat (.*)\)", values)
            _check_message(kind, "Goal", (ROOT / file[1]).read_text() if file else values)
        case ["ros2", "topic", "echo", *_] | ["git" | "cd" | "rosdep" | "colcon" | "source", *_]:
            pass
        case ["pip", "install", *_] | ["serve" | "ssh", *_] | ["ros2", "bag", *_]:
            pass
        case _:
            pytest.fail(f"{page}: nobody knows how to check: {command}")


@pytest.mark.parametrize(("page", "command"), MENTIONED)
def test_every_command_that_is_mentioned_has_these_options(page: str, command: str) -> None:
    program, *words = shlex.split(command)
    if program == "ros2":
        test_every_command_is_one_that_exists(page, command)
        return
    names = {one.name for one in REGISTERED}
    assert words[0] in names or words[0].isupper() or words[0].startswith("--"), command
    depth = 2 if words[0] == "bench" else 1
    if OPTION.search(command) and words[0] in names:
        known = f"### `jepa-planner {' '.join(words[:depth])}`"
        section = reference_section(known)
        for option in OPTION.findall(command):
            assert option in section, option


def reference_section(heading: str) -> str:
    """What the reference tells of one command."""
    text = (ROOT / "docs" / "reference.md").read_text()
    return text.partition(f"{heading}\n")[2].partition("\n### ")[0]


def _check_launch(file: str, given: list[str]) -> None:
    """Arguments are those that the file, or the one that it includes, declares."""
    source = (ROOT / "launch" / file).read_text()
    if "planner.launch.py" in source:
        source += (ROOT / "launch" / "planner.launch.py").read_text()
    for name in given:
        assert f'"{name}"' in source, name


def _check_message(kind: str, part: str, values: str) -> None:
    """The values are fields of the message, whatever they hold."""
    package, group, name = kind.split("/")
    if package in ("moveit_msgs",):
        return
    interface = getattr(importlib.import_module(f"{package}.{group}"), name)
    message = getattr(interface, part)()
    for field in yaml.safe_load(values):
        assert hasattr(message, field), field


# --- The node's own words ------------------------------------------------------------------------


def texts() -> Iterator[str]:
    """Every text in the code, with three dots for what is filled in."""
    for path in (ROOT / "jepa_planner_ros").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "..."
                    for part in node.values
                )


def symptoms() -> Iterator[str]:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[0] not in ("it says", "---"):
            yield cells[0]


def test_symptoms_are_in_the_words_of_the_code() -> None:
    known = tuple(texts())
    quoted = tuple(symptoms())
    assert len(quoted) > 30
    for symptom in quoted:
        parts = [part.strip(" .") for part in symptom.split("...")]
        assert any(all(part in text for part in parts) for text in known), symptom


# --- The nodes by hand ---------------------------------------------------------------------------


def called(command: str) -> list[str]:
    """A documented command as this interpreter calls it."""
    program, *arguments = shlex.split(command)
    if program == "jepa-planner":
        return [sys.executable, "-m", "jepa_planner_ros.cli.main", *arguments]
    assert program == "python", command
    return [sys.executable, *arguments]


def test_the_nodes_by_hand_take_a_photograph_and_reach_it(tmp_path: Path) -> None:
    documented = {
        command for block in BLOCKS if block.mark.endswith(BY_HAND) for command in block.commands
    }
    simulation, elsewhere = sorted(one for one in documented if "sim_node" in one)
    (planner,) = (one for one in documented if "planner_node" in one)
    capture, reach = sorted(one for one in documented if one.startswith("jepa-planner"))
    goal = str(tmp_path / "goal.png")
    running: list[subprocess.Popen[bytes]] = []

    def start(command: str, *more: str) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen([*called(command), *more], cwd=ROOT))
        return running[-1]

    def run(command: str) -> subprocess.CompletedProcess[str]:
        words = called(command.replace("goal.png", goal))
        return subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, timeout=PATIENCE)

    try:
        robot = start(simulation)
        # Ray costs its start, and is tested elsewhere.
        start(planner, "-p", "planner:=in_process")
        deadline = time.monotonic() + PATIENCE
        while run(capture).returncode != 0:
            assert time.monotonic() < deadline
        robot.send_signal(signal.SIGINT)
        assert robot.wait(PATIENCE) == 0
        start(elsewhere)
        reached = run(reach)
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
        for process in running:
            process.wait(PATIENCE)
    assert reached.returncode == 0, reached.stdout + reached.stderr
    assert "Reached the goal" in reached.stdout
    assert "\n   1 " in reached.stdout, "the arm had a way to go"
