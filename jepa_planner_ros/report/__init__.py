"""What happened in a run of episodes: as records, as figures, and as one HTML page."""

from jepa_planner_ros.report.page import headline, write_report
from jepa_planner_ros.report.records import (
    REACHED_CM,
    Camera,
    EpisodeRecord,
    Image,
    LatencyRecord,
    PlannedMotion,
    RunRecord,
    StepRecord,
)
from jepa_planner_ros.report.summary import reached_fraction, summarise

__all__ = [
    "REACHED_CM",
    "Camera",
    "EpisodeRecord",
    "Image",
    "LatencyRecord",
    "PlannedMotion",
    "RunRecord",
    "StepRecord",
    "headline",
    "reached_fraction",
    "summarise",
    "write_report",
]
