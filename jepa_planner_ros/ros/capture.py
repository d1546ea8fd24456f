"""The service ``~/capture_goal``: goals are made by moving the arm there and taking a picture."""

from __future__ import annotations

import traceback
from datetime import datetime
from pathlib import Path

from jepa_planner_msgs.srv import CaptureGoal
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node

from jepa_planner_ros.control import RobotError
from jepa_planner_ros.photograph import save_photograph
from jepa_planner_ros.ros.poses import state_message
from jepa_planner_ros.ros.robot import RosRobot


class CaptureService:
    """Saves the present camera frame, with the state that it was taken at inside the file."""

    def __init__(self, node: Node, robot: RosRobot, directory: Path, group: CallbackGroup) -> None:
        self._node = node
        self._robot = robot
        self._directory = directory
        self._service = node.create_service(
            CaptureGoal, "~/capture_goal", self._capture, callback_group=group
        )

    def _capture(
        self, request: CaptureGoal.Request, response: CaptureGoal.Response
    ) -> CaptureGoal.Response:
        try:
            frame = self._robot.frame()
            path = self._path(request.path)
            replaced = path.exists()
            save_photograph(frame.image, frame.state, path)
        except (RobotError, OSError, ValueError) as error:
            response.success, response.message = False, f"No goal was saved. {error}"
            return response
        except Exception as error:
            # Whatever leaves a service's callback ends the executor, and the node with it.
            self._node.get_logger().error(traceback.format_exc())
            cause = str(error) or type(error).__name__
            response.success = False
            response.message = f"No goal was saved. The node failed: {cause}"
            return response
        response.success = True
        response.image_path = str(path)
        response.message = f"Saved the goal as {path}."
        if replaced:
            response.message += " It replaced the file that was there."
        response.state = state_message(frame.state)
        return response

    def _path(self, asked: str) -> Path:
        if not asked:
            self._directory.mkdir(parents=True, exist_ok=True)
            return self._directory / f"goal_{datetime.now():%Y%m%d_%H%M%S_%f}.png"
        try:
            path = Path(asked).expanduser().absolute()
        except RuntimeError as error:
            raise ValueError(f"path = '{asked}' cannot be used: {error}") from error
        if path.suffix.lower() != ".png":
            raise ValueError(f"path = '{asked}' must end in .png, which keeps every pixel.")
        if path.exists() and not path.is_file():
            raise ValueError(f"path = '{asked}' exists and is not a regular file; name another.")
        if not path.parent.is_dir():
            raise ValueError(f"path = '{asked}' cannot be used: there is no folder {path.parent}.")
        return path
