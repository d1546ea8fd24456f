#!/usr/bin/env bash
# Print which ROS 2 to use: "sourced" when one is sourced, else the name of the wheels.
# Usage: which_ros.sh PYTHON DISTRO
set -euo pipefail
python=$1 distro=$2

# ROS_DISTRO may also be given to make; only a set-up file sets ROS_VERSION.
if [[ -z ${ROS_VERSION:-} || -z ${AMENT_PREFIX_PATH:-} ]]; then
    echo "$distro"
elif "$python" -c 'import rclpy' 2>/dev/null; then
    echo sourced
else
    # The wheels would load the sourced libraries instead of their own.
    echo "ROS 2 ${ROS_DISTRO:-} is sourced, but $python cannot import its rclpy. Use the Python that it" \
        "was built for (make PYTHON=/usr/bin/python3), or a shell where no ROS 2 is sourced." >&2
    exit 1
fi
