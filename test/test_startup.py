"""What nodes make of their command lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import rclpy
from rclpy.parameter import Parameter

from jepa_planner_ros.ros.declaration import ParameterError, unknown_parameters
from jepa_planner_ros.ros.startup import given_parameters, ros_started


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("-p seed:=1", "-p seed:=1: what is meant for ROS must come after --ros-args."),
        ("--ros-args seed:=1", "'seed:=1' is unknown to ROS: parameters are given as -p NAME"),
        ("--ros-args -p seed:=", "Couldn't parse parameter override rule: '-p seed:='.\n"),
        ("--ros-args --params-file nowhere.yaml", "error: there is no file nowhere.yaml.\n"),
    ],
)
def test_a_command_line_that_is_not_understood_ends_with_the_right_one(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, ros_started("a_node", line.split()):
        pass
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: a_node [--ros-args [--params-file FILE] [-p NAME:=VALUE] ...]")
    assert sentence in told
    assert not rclpy.ok()


def test_help_is_given_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, ros_started("a_node", ["--help"]):
        pass
    assert ended.value.code == 0
    assert "docs/reference.md" in capsys.readouterr().out


def test_the_last_of_several_values_holds_whatever_its_type(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("/**: {ros__parameters: {seed: 1, budget: 12, name: arm}}")
    second.write_text("/there/camera: {ros__parameters: {budget: few}}")
    files = f"--params-file {first} --params-file {second}"
    line = f"--ros-args {files} -r __ns:=/there --param seed:=x -p speed:=1 -p speed:=0.5"
    with ros_started("a_node", line.split()) as arguments:
        given = {one.name: one.value for one in given_parameters("camera", arguments)}
    assert given == {"seed": "x", "budget": "few", "name": "arm", "speed": 0.5}


def test_a_file_that_holds_nothing_for_the_node_is_told_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    right, wrong = tmp_path / "right.yaml", tmp_path / "wrong.yaml"
    right.write_text("/there/camera: {ros__parameters: {seed: 1}}")
    wrong.write_text("camera: {ros__parameters: {seed: 2}}")
    line = f"--ros-args --params-file {wrong} --params-file {right} -r __ns:=/there -p budget:=3"
    with ros_started("a_node", line.split()) as arguments:
        given = {one.name: one.value for one in given_parameters("camera", arguments)}
    assert given == {"seed": 1, "budget": 3}
    told = capfd.readouterr().err
    assert (
        f"{wrong} holds nothing for the node /there/camera: its heading must be /there/camera or "
        "/**."
    ) in told
    assert str(right) not in told


KNOWN = ("seed", "limits.translation_speed", "motion.duration")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("sead", "There is no parameter sead: its value is ignored. Did you mean seed?"),
        # The simulation's, which may stand in the same file.
        ("motion_duration", "no parameter motion_duration: its value is ignored"),
        ("servo.limits.translation_speed", "its value is ignored"),
    ],
)
def test_an_unknown_parameter_may_be_another_nodes(given: str, sentence: str) -> None:
    (told,) = asked_for_unknown(given)
    assert sentence in told


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("limits.translation_sped", "limits.translation_speed"),
        ("limit.translation_speed", "limits.translation_speed"),
        ("motion.duratoin", "motion.duration"),
    ],
)
def test_no_limit_is_ignored(given: str, meant: str) -> None:
    with pytest.raises(ParameterError, match=f"no parameter {given}, .* Did you mean {meant}?"):
        asked_for_unknown(given)


def asked_for_unknown(name: str) -> tuple[str, ...]:
    with ros_started("a_node", []):
        node = rclpy.create_node("arm", parameter_overrides=[Parameter(name, value=0.1)])
        try:
            return unknown_parameters(node, KNOWN, strict=("limits", "motion"))
        finally:
            node.destroy_node()
