"""What the demo shows in the terminal while it runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from jepa_planner_ros.cli import CommandError
from jepa_planner_ros.cli.processes import Program
from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.report import REACHED_CM, EpisodeRecord, StepRecord
from jepa_planner_ros.types import Float64Array

PATIENCE_AT_START = 300.0
"""Seconds that a program may take to be ready; big checkpoints take minutes to load."""

_POLL = 0.05  # s
_BAR_WIDTH = 24
_UNUSUAL = ("aborted", "timed_out", "cancelled")
_LOG_PREFIX = re.compile(r"^\[[A-Z]+\] \[[0-9.]+\] \[[^\]]*\]: ")


class Display:
    """Spinners while things start, a row for each step, a line for each finished episode.

    Args:
        episodes: how many there will be; with several, a progress bar counts them.
    """

    def __init__(self, episodes: int) -> None:
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=10)
        self._several = episodes > 1
        self._progress = Progress(
            TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        )
        self._task = self._progress.add_task("episodes", total=episodes)
        self._steps = Table.grid()
        self._step = 0
        self._start_cm = 0.0
        self._goal_state: Float64Array | None = None

    def __enter__(self) -> Display:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._live.update(Text(""))
        self._live.stop()

    def wait_for(
        self, program: Program, ready: Callable[[], bool], watch: Callable[[], None]
    ) -> None:
        """Show a spinner, and the program's last words, until it is ready.

        Raises:
            CommandError: it was not ready in time.
        """
        started = time.monotonic()
        spinner = Spinner("dots", style="cyan")
        while not ready():
            watch()
            elapsed = time.monotonic() - started
            if elapsed > PATIENCE_AT_START:
                raise CommandError(
                    f"the {program.name} was not ready after {PATIENCE_AT_START:g} s; "
                    f"see {program.log}."
                )
            words = Text.assemble(
                f" {program.name} starts … {elapsed:.0f} s  ", (_last_words(program), "dim")
            )
            words.truncate(self._console.width - 4, overflow="ellipsis")
            spinner.update(text=words)
            self._live.update(spinner)
            time.sleep(_POLL)
        self._live.update(Text(""))
        elapsed = time.monotonic() - started
        self._console.print(f"[green]✓[/green] {program.name} ready", f"[dim]{elapsed:.1f} s[/dim]")

    def tell(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(text)

    def begin(self, name: str, start_state: Float64Array, goal_state: Float64Array) -> None:
        """An episode starts, from a state (7,) to a state (7,)."""
        self._goal_state, self._step = goal_state, 0
        self._start_cm = self._distance_cm(start_state)
        self._steps = Table(
            title=f"{name}: the photographed goal is {self._start_cm:.1f} cm away",
            title_justify="left",
            title_style="bold",
            box=None,
            pad_edge=False,
        )
        for heading in ("step", "energy", "predicted", "plan ms", "cm to goal"):
            self._steps.add_column(heading, justify="right", header_style="dim")
        self._steps.add_column("", width=_BAR_WIDTH)
        self._refresh()

    def show_step(self, step: StepRecord) -> None:
        """A step was planned."""
        distance = self._distance_cm(step.state)
        self._steps.add_row(
            str(self._step),
            f"{step.energy:.3f}",
            f"{step.predicted_energies[0]:.3f}",
            f"{1000.0 * step.latency.plan:.0f}",
            *self._distance_cells(distance),
        )
        self._step += 1
        self._refresh()

    def end(self, episode: EpisodeRecord) -> None:
        """An episode is over."""
        self._steps.add_row(
            "end", f"{episode.final_energy:.3f}", "", "", *self._distance_cells(episode.final_cm)
        )
        if episode.outcome in _UNUSUAL:
            self._console.print(f"[yellow]{episode.name}: {episode.reason}[/yellow]")
        self._progress.advance(self._task)
        if self._several:
            mark = "[green]✓[/green]" if episode.reached else "[red]✗[/red]"
            self._console.print(
                f"{mark} {episode.name:<9} {episode.start_cm:5.1f} → {episode.final_cm:4.1f} cm  "
                f"[dim]{len(episode.steps)} steps, {episode.elapsed_s:.1f} s, "
                f"{episode.outcome.replace('_', ' ')}[/dim]"
            )
        self._refresh()

    def _distance_cm(self, state: Float64Array) -> float:
        assert self._goal_state is not None
        return 100.0 * float(np.linalg.norm(state[POSITION] - self._goal_state[POSITION]))

    def _distance_cells(self, distance_cm: float) -> tuple[str, Text]:
        """The distance as a number and as a bar."""
        length = round(_BAR_WIDTH * min(1.0, distance_cm / max(self._start_cm, 1e-9)))
        colour = "green" if distance_cm < REACHED_CM else "cyan"
        return f"{distance_cm:.1f}", Text("━" * length, style=colour)

    def _refresh(self) -> None:
        parts: list[RenderableType] = [self._steps]
        if self._several:
            parts.append(self._progress)
        self._live.update(Group(*parts))


def _last_words(program: Program) -> str:
    """The last line that a program printed, without the prefix of its logger."""
    lines = program.log.read_text(errors="replace").splitlines()
    return _LOG_PREFIX.sub("", lines[-1]) if lines else ""
