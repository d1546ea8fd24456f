"""The planner node: brings the arm to where a photograph shows it.

It offers the action ``~/reach_goal`` and the service ``~/capture_goal``; `parameters` lists what
can be set. Topics in: ``image_raw`` or ``image_raw/compressed``, ``joint_states``, optionally
``current_pose``. Topics out: ``~/goal``, ``~/plan``, ``~/outcome``, ``~/status`` and
``/diagnostics``; and, by the commander, one of ``target_pose``, ``servo_node/pose_target_cmds``,
``servo_node/delta_twist_cmds``, ``joint_trajectory_controller/joint_trajectory`` and
``~/would_command``. The gripper is told on ``gripper/gripper_position_controller/commands``, or by
the actions ``franka_gripper/move`` and ``franka_gripper/grasp``, or
``franka_gripper/gripper_action``.
"""

from __future__ import annotations

from contextlib import suppress

from jepa_planner_ros.ros.interrupt import heed_first_interrupt
from jepa_planner_ros.ros.startup import ros_started


def main(args: list[str] | None = None) -> None:
    """Run the node until it is interrupted. Exits with another code than 0 if it cannot start."""
    heed_first_interrupt()
    with suppress(KeyboardInterrupt), ros_started("planner_node", args) as arguments:
        # Takes seconds, because of PyTorch, in which an interrupt must be heeded already.
        from jepa_planner_ros.ros.node import run

        run(arguments)


if __name__ == "__main__":
    main()
