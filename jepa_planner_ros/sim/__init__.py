"""A simulated Franka (MuJoCo): physics and cameras without ROS, and the ROS node on top."""

import os

# MuJoCo chooses its OpenGL library when it is first imported; without a screen only EGL works.
if not os.environ.get("DISPLAY"):
    os.environ.setdefault("MUJOCO_GL", "egl")
