"""The comparison of control modes, on an episode that is short enough for a test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jepa_planner_ros.cli.main import main


def test_non_blocking_control_hides_planning_and_the_figures_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, plot, page = (tmp_path / f"control.{kind}" for kind in ("json", "png", "html"))
    small = ["--episodes", "1", "--steps", "4", "--planning", "0.86"]
    written = ["--json", str(figures), "--plot", str(plot), "--report", str(page)]
    assert main(["bench", "control", *small, *written]) == 0
    modes = json.loads(figures.read_text())["modes"]
    assert modes["blocking"]["step_s"] >= 1.8
    for mode in ("non_blocking", "queue"):
        assert modes[mode]["step_s"] <= 1.03
        assert modes[mode]["idle_fraction"] < 0.05 < modes["blocking"]["idle_fraction"]
        assert modes[mode]["final_cm"] < 10.0
    told = page.read_text()
    for mode in modes:
        assert f"{mode}, 0.86 s for a plan" in told
    assert told.count("<rect") >= 3 * (4 + 4), "a bar for each motion and each plan"
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "non_blocking" in capsys.readouterr().out


def test_settings_that_cannot_work_are_refused_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "control", "--search", "telepathy"]) == 1
    assert "search = 'telepathy'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "control", "--motion", "-1"])
    complaint = "argument --motion: must be a number from 0.05 to 10.0, not '-1'."
    assert complaint in capsys.readouterr().err
