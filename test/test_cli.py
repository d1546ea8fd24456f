from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from planner_service import free_port

from jepa_planner_ros import __version__
from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.domain import DOMAINS, enter_domain, free_domain
from jepa_planner_ros.cli.main import COMMANDS, main
from jepa_planner_ros.cli.planner_name import full_name


def test_help_names_every_command_and_loads_none_of_them() -> None:
    script = (
        "import sys; from jepa_planner_ros.cli.main import main\n"
        "try: main(['--help'])\n"
        "finally: print('loaded', {'torch', 'ray', 'rclpy', 'mujoco'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert result.returncode == 0
    assert all(command.name in result.stdout for command in COMMANDS)
    assert "loaded set()" in result.stdout


def test_the_help_of_the_demo_explains_it_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    with pytest.raises(SystemExit, match="0"):
        main(["demo", "--help"])

    assert time.monotonic() - started < 1.0
    explained = capsys.readouterr().out
    assert all(word in explained for word in ("--episodes", "photograph", "exit code", "examples"))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])

    assert capsys.readouterr().out == f"jepa-planner {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "COMMAND"),
        (["dance"], "dance"),
        (["demo", "--episodes", "0"], "--episodes: must be a whole number of at least 1, not '0'."),
        (["demo", "--real-time-factor", "100"], "must be a number from 0.1 to 10.0, not '100'."),
        (["demo", "--domain-id", "400"], "from 0 to 101, not '400'"),
        (["demo", "--seed", "-1"], "from 0 to 9223372036854775807, not '-1'"),
        (["demo", "--seed", str(2**63)], "from 0 to 9223372036854775807"),
        (["reach", "goal.png", "--energy-threshold", "x"], "must be a number from 0.0 to 10.0"),
        (["reach", "goal.png", "--energy-threshold", "nan"], "from 0.0 to 10.0, not 'nan'."),
        (["reach", "goal.png", "--control-mode", "dance"], "'blocking', 'non_blocking', 'queue'"),
        (["capture", "goal.png", "--domain-id", "233"], "from 0 to 232, not '233'."),
        (["reach", "goal.png", "--steps", "1.5"], "must be a whole number from 1 to 10000"),
    ],
)
def test_a_wrong_command_line_is_refused_with_what_is_wrong(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)

    assert complaint in capsys.readouterr().err


def test_an_unknown_search_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--search", "random"]) == 1

    assert "search = 'random' is unknown; it must be one of: fast" in capsys.readouterr().err


def test_a_demo_whose_report_cannot_be_written_is_refused_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")

    assert main(["demo", "--output", str(tmp_path / "file")]) == 1

    assert "--output cannot be written to" in capsys.readouterr().err


def test_a_missing_module_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # What other tests have loaded is found without it.
    loaded = ("rclpy.", "jepa_planner_ros.cli.demo_loop", "jepa_planner_ros.cli.episode_client")
    for name in [name for name in sys.modules if name.startswith(loaded)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rclpy", None)

    assert main(["demo"]) == 1
    complaint = capsys.readouterr().err
    assert "rclpy" in complaint
    assert "make setup" in complaint


def test_a_missing_world_model_is_named_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--checkpoint", "/nowhere/model.safetensors"]) == 1

    assert "/nowhere/model.safetensors" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "other", "host"),
    [("--port", "--health-port", ""), ("--health-port", "--port", "127.0.0.1")],
)
def test_a_service_does_not_share_a_port(
    option: str, other: str, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Like another Serve, which would let us listen beside it.
    with socket.create_server((host, 0), reuse_port=True) as taken:
        port = str(taken.getsockname()[1])

        assert main(["serve", option, port, other, str(free_port())]) == 1

    complaint = capsys.readouterr().err
    assert f"{option} {port} cannot be listened on: Address already in use." in complaint
    assert "give another port" in complaint


@pytest.mark.parametrize(
    ("content", "complaint"), [(None, "there is no file"), ("weights", "model.safetensors")]
)
def test_a_service_refuses_a_useless_world_model_before_it_starts_ray(
    content: str | None,
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = tmp_path / "model.safetensors"
    if content is not None:
        model.write_text(content)
    # Ray's process would end at once, and that would be the complaint.
    monkeypatch.setattr(sys, "executable", "/bin/false")
    ports = ("--port", str(free_port()), "--health-port", str(free_port()))

    assert main(["serve", "--checkpoint", str(model), *ports]) == 1

    told = capsys.readouterr().err
    assert complaint in told
    assert "Ray" not in told


@pytest.mark.parametrize(
    ("namespace", "node", "name"),
    [
        ("", "jepa_planner", "/jepa_planner"),
        ("left", "jepa_planner", "/left/jepa_planner"),
        ("/lab/left", "planner", "/lab/left/planner"),
        ("left", "/right/jepa_planner", "/right/jepa_planner"),
        ("/", "jepa_planner", "/jepa_planner"),
    ],
)
def test_a_planner_node_is_named_in_its_namespace_or_as_a_whole(
    namespace: str, node: str, name: str
) -> None:
    assert full_name(namespace, node) == name


@pytest.mark.parametrize(("namespace", "node"), [("left/", "p"), ("", "a planner"), ("", "")])
def test_what_is_no_name_in_ros_is_refused(namespace: str, node: str) -> None:
    with pytest.raises(CommandError, match=r"are no names of ROS: Invalid .* must not"):
        full_name(namespace, node)


@pytest.mark.parametrize(
    ("command", "patience", "sought"),
    [
        ("capture", "capture._FOR_THE_NODE", "/left/jepa_planner/capture_goal"),
        ("reach", "reach._PATIENCE", "/left/jepa_planner/reach_goal"),
    ],
)
def test_a_planner_node_that_is_not_there_is_named_with_where_it_was_looked_for(
    command: str,
    patience: str,
    sought: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(f"jepa_planner_ros.cli.{patience}", 0.1)
    photograph, domain = tmp_path / "goal.png", str(free_domain())
    photograph.write_bytes(b"")
    where = ("--namespace", "left", "--domain-id", domain)

    assert main([command, str(photograph), *where]) == 1

    complaint = capsys.readouterr().err
    assert f"no planner node offers {sought} in ROS domain {domain}." in complaint
    assert "Ready for goals." in complaint


def test_a_recording_of_nobody_tells_what_it_waits_for_and_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jepa_planner_ros.cli.record._PATIENCE", 0.2)
    domain = str(free_domain())
    where = ("--namespace", "left", "--domain-id", domain)

    assert main(["record", str(tmp_path / "bag"), "--duration", "0.6", *where]) == 1

    told = capsys.readouterr().out
    silent = "/left/image_raw, /left/jepa_planner/goal, /left/jepa_planner/outcome"
    assert told.count(f"Nobody publishes yet on {silent}") == 1
    assert f"in ROS domain {domain}: check --namespace" in told
    assert "ROS_DOMAIN_ID" in told.splitlines()[-1]


def test_a_planner_that_does_not_answer_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jepa_planner_ros.cli.demo_loop._ANSWER_WITHIN", 0.5)
    address = f"grpc://127.0.0.1:{free_port()}"

    assert main(["demo", "--planner", address, "--output", str(tmp_path)]) == 1

    complaint = capsys.readouterr().err
    assert f"the planner at {address} cannot be reached" in complaint
    assert "jepa-planner serve" in complaint
    assert not (tmp_path / "logs").exists()


def test_a_domain_in_use_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = free_domain()
    participant = (
        "import rclpy, sys; rclpy.init(); node = rclpy.create_node('someone'); print('up');"
        "sys.stdout.flush(); sys.stdin.read()"
    )
    environment: dict[str, str] = {}
    enter_domain(domain, environment)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    someone = subprocess.Popen(
        [sys.executable, "-c", participant], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert someone.stdout is not None
        assert someone.stdout.readline() == b"up\n"
        assert free_domain() != domain
        assert free_domain() in DOMAINS
    finally:
        someone.kill()
        someone.wait()
