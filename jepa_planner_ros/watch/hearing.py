"""How each message changes what is known: functions from (known, message, time) to known.

Messages are taken apart field by field; nothing here imports ROS. `now` is when the message came,
seconds of the watcher's steady clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jepa_planner_ros.control.episode import NANOSECONDS
from jepa_planner_ros.geometry import POSITION
from jepa_planner_ros.photograph import state_inside
from jepa_planner_ros.robot.joints import JointsError, read_arm
from jepa_planner_ros.ros.reading import stamp_of, state_array, states_array
from jepa_planner_ros.types import Float64Array
from jepa_planner_ros.watch.records import (
    Candidates,
    Command,
    Diagnosis,
    Goal,
    Line,
    Outcome,
    Posture,
    Span,
    Step,
    SubGoal,
    Topic,
    Watched,
)
from jepa_planner_ros.watch.timeline import outcome_of

OUTCOMES: Mapping[int, str] = {
    1: "reached",
    2: "budget_spent",
    3: "timed_out",
    4: "cancelled",
    5: "aborted",
}
"""By the constants of the action's result."""

_ENDED: Mapping[int, str] = {4: "reached", 5: "cancelled", 6: "ended"}
"""By the status of an action's goal, whose `aborted` (6) says little about the outcome."""

_STEPS_KEPT = 200
_LINES_KEPT = 60
_ARRIVALS_KEPT = 20
_MOTIONS_KEPT = 120
_LOG_WORTH_SHOWING = 20
"""Level of an information in ``rcl_interfaces/msg/Log``."""

_NOTICEABLE_RAD, _NOTICEABLE_M = 0.0015, 0.0006
"""Changes of a joint, or of the end effector's position, that count as motion."""
_LOOK_BACK = 0.12
"""The time within which such a change is motion, s."""
_SAME_MOTION = 0.15
"""A shorter rest, s, does not divide a motion: controllers hesitate between setpoints."""


def heard(topic: Topic, now: float) -> Topic:
    """A message came that can be used."""
    return replace(topic, arrivals=(*topic.arrivals[1 - _ARRIVALS_KEPT :], now), problem=None)


def looked(watched: Watched, present: bool, now: float) -> Watched:
    """Somebody looked whether the node is there. One that comes back has no goal yet."""
    if present and watched.present is False:
        watched = replace(watched, goal=None, outcome=None, steps=(), command=None, holding="")
    last = now if present else watched.last_present
    return replace(watched, present=present, last_present=last)


def heard_goal(watched: Watched, message: Any, now: float) -> Watched:
    """A goal begins, or is repeated to those who come late: the one before is over."""
    # Whoever tells of a goal is there, and may have come back since somebody looked.
    watched = looked(watched, True, now)
    goal = Goal(
        goal_id=_hex(message.goal_id),
        began=now if watched.clock is None else min(now, _moment(message, watched.clock)),
        subgoals=tuple(
            SubGoal(float(one.energy_threshold), int(one.step_budget), _place(one))
            for one in message.subgoals
        ),
        control_mode=message.control_mode,
        time_limit=_duration(message.time_limit),
    )
    # A plan may be heard before the goal that it belongs to.
    steps = tuple(step for step in watched.steps if step.goal_id == goal.goal_id)
    same = watched.goal is not None and watched.goal.goal_id == goal.goal_id
    begun = replace(
        watched,
        goal=goal,
        steps=steps,
        outcome=watched.outcome if same else None,
        command=watched.command if same else None,
        holding=watched.holding if same else "",
    )
    return _concluded(begun, now)


def heard_plan(watched: Watched, message: Any, now: float) -> Watched:
    """A plan was made."""
    watched = looked(watched, True, now)
    latency = {
        name: float(getattr(message.latency, name))
        for name in message.latency.get_fields_and_field_types()
    }
    work = sum(latency.values()) - latency.get("capture_age", 0.0)
    began = now - work
    if watched.clock is not None:
        # The stamp knows better where a plan waited for the arm before it was told.
        began = min(began, _moment(message, watched.clock) + latency.get("capture_age", 0.0))
    step = Step(
        goal_id=_hex(message.goal_id),
        subgoal=int(message.subgoal),
        step=int(message.step),
        energy=float(message.energy),
        predicted_energies=tuple(map(float, message.predicted_energies)),
        round_best=tuple(map(float, message.round_best_energies)),
        round_elites=tuple(map(float, message.round_elite_energies)),
        rollouts=int(message.rollouts),
        search=message.search,
        latency=latency,
        began=began,
        told=now,
        path=np.vstack((state_array(message.state), states_array(message.predicted_states)))[
            :, POSITION
        ],
        candidates=_candidates(message),
    )
    steps = (*watched.steps, step)
    if watched.goal is None or watched.goal.goal_id != step.goal_id:
        steps = tuple(one for one in steps if one.goal_id == step.goal_id)
    return replace(watched, steps=steps[-_STEPS_KEPT:])


def heard_feedback(watched: Watched, message: Any, now: float) -> Watched:
    """A step was commanded, or none can be for now."""
    told = message.feedback
    if told.holding:
        return replace(watched, holding=told.holding)
    position = told.target_pose.pose.position
    command = Command(
        now,
        (float(position.x), float(position.y), float(position.z)),
        float(told.target_gripper),
        int(told.queue_length),
    )
    return replace(watched, command=command, holding="")


def heard_outcome(watched: Watched, message: Any, now: float) -> Watched:
    """A goal ended."""
    outcome = Outcome(
        goal_id=_hex(message.goal_id),
        name=OUTCOMES.get(int(message.outcome), "ended"),
        reason=message.reason,
        at=now,
        final_energy=float(message.final_energy),
        elapsed=_duration(message.elapsed),
    )
    return replace(watched, outcome=outcome)


def heard_action_status(watched: Watched, message: Any, now: float) -> Watched:
    """The action tells which goals have ended; what else their outcomes said is not repeated."""
    ended = {
        _hex(one.goal_info.goal_id.uuid): _ENDED[one.status]
        for one in message.status_list
        if one.status in _ENDED
    }
    return _concluded(replace(watched, ended=ended), now)


def _concluded(watched: Watched, now: float) -> Watched:
    """The present goal has its outcome where the action said that it ended, and no more is known.

    The action may say so before the goal itself is heard.
    """
    goal = watched.goal
    if goal is None or goal.goal_id not in watched.ended or outcome_of(watched) is not None:
        return watched
    name = watched.ended[goal.goal_id]
    return replace(watched, outcome=Outcome(goal.goal_id, name, "", now, math.nan, math.nan))


def heard_status(watched: Watched, message: Any, _now: float) -> Watched:
    """The node said something."""
    return replace(watched, status=message.data)


def heard_log(watched: Watched, message: Any, now: float) -> Watched:
    """Some node logged something."""
    logger = watched.node.lstrip("/").replace("/", ".")
    if message.name != logger or message.level < _LOG_WORTH_SHOWING:
        return watched
    line = Line(now, int(message.level), message.msg)
    return replace(watched, log=(*watched.log, line)[-_LINES_KEPT:])


def heard_diagnostics(watched: Watched, message: Any, now: float) -> Watched:
    """Some node told how it is."""
    own = tuple(
        Diagnosis(
            status.name.partition(": ")[2] or status.name,
            _level(status.level),
            status.message,
            {pair.key: pair.value for pair in status.values},
        )
        for status in message.status
        if status.hardware_id == watched.node
    )
    return replace(watched, diagnoses=own, diagnosed=now) if own else watched


def heard_frame(watched: Watched, now: float) -> Watched:
    """A picture of the camera came."""
    return replace(watched, camera=heard(watched.camera, now))


def heard_drawing(watched: Watched, now: float) -> Watched:
    """A picture of the view node came."""
    return replace(watched, drawing=heard(watched.drawing, now))


def heard_would_command(watched: Watched, _message: Any, now: float) -> Watched:
    """A dry run told what it would command."""
    return replace(watched, would_command=now)


def heard_joints(
    watched: Watched, message: Any, now: float, joint_prefix: str | None = None
) -> Watched:
    """The arm's joints were measured. Nothing is known of an arm that a message does not tell of.

    `joint_prefix` is how they are called up to their number; None looks for the usual ones.
    """
    try:
        reading = read_arm(message.name, message.position, joint_prefix)
    except JointsError as error:
        return replace(watched, arm=replace(watched.arm, problem=str(error)))
    return _measured(watched, message, reading.positions / _NOTICEABLE_RAD, now)


def heard_pose(watched: Watched, message: Any, now: float) -> Watched:
    """The end effector's pose was measured."""
    p = message.pose.position
    return _measured(watched, message, np.array([p.x, p.y, p.z]) / _NOTICEABLE_M, now)


def _measured(watched: Watched, message: Any, values: Float64Array, now: float) -> Watched:
    postures = tuple(one for one in watched.postures if now - one.at <= 2.0 * _LOOK_BACK)
    moving = watched.moving
    # The newest measurement that is old enough, or the oldest there is.
    earlier = [one for one in postures if now - one.at >= _LOOK_BACK] or list(postures[:1])
    if earlier and np.abs(values - earlier[-1].values).max() > 1.0:
        moving = extended(moving, (earlier[-1].at, now))
    stamp = stamp_of(message)
    return replace(
        watched,
        arm=heard(watched.arm, now),
        clock=now - stamp / NANOSECONDS if stamp else watched.clock,
        postures=(*postures, Posture(now, values)),
        moving=moving[-_MOTIONS_KEPT:],
    )


def extended(spans: tuple[Span, ...], span: Span) -> tuple[Span, ...]:
    """Spans in order, and one more at their end, joined to the last where no rest is between."""
    if spans and span[0] - spans[-1][1] <= _SAME_MOTION:
        return (*spans[:-1], (spans[-1][0], span[1]))
    return (*spans, span)


def _place(subgoal: Any) -> Float64Array | None:
    state = state_inside(bytes(subgoal.compressed_image.data))
    return None if state is None else state[POSITION]


def _candidates(message: Any) -> Candidates | None:
    # Recordings of earlier versions have no such field.
    points = getattr(message, "candidates", ())
    if not points:
        return None
    return Candidates(
        np.array([[one.x, one.y, one.z] for one in points], dtype=np.float64),
        np.array(message.candidate_energies, dtype=np.float64),
        int(message.candidate_elites),
    )


def _moment(message: Any, clock: float) -> float:
    """The time of a message's stamp by the watcher's clock."""
    return stamp_of(message) / NANOSECONDS + clock


def _duration(message: Any) -> float:
    return float(message.sec) + message.nanosec / NANOSECONDS


def _hex(identifier: Any) -> str:
    return bytes(identifier).hex()


def _level(level: Any) -> int:
    """A ``byte`` as a number; rclpy gives bytes."""
    return level[0] if isinstance(level, bytes) else int(level)
