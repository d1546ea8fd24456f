#!/usr/bin/env bash
# Build jepa_planner_msgs straight into the virtual environment, and show ROS the package itself.
# Usage: interfaces.sh VENV
set -euo pipefail
venv=$PWD/$1
export PATH=$venv/bin:$PATH

run_quietly() {
    local log=build/msg.log
    "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        exit 1
    }
}

echo "Building the interfaces (about a minute)"
mkdir -p build
run_quietly cmake -S msg -B build/msg \
    -DBUILD_TESTING=OFF \
    -DCMAKE_INSTALL_PREFIX="$venv" \
    -DCMAKE_PREFIX_PATH="$venv" \
    -DCMAKE_PROJECT_INCLUDE="$PWD/scripts/setup/wheel_includes.cmake" \
    -DPython3_EXECUTABLE="$venv/bin/python"
run_quietly cmake --build build/msg --parallel "$(nproc)"
run_quietly cmake --install build/msg

# What colcon would install, as links into the checkout: `ros2 run` and `ros2 launch` find it, and
# an edit counts at once.
share=$venv/share
rm -rf "$share/jepa_planner_ros"
mkdir -p "$share/ament_index/resource_index/packages" "$share/jepa_planner_ros/launch" \
    "$venv/lib/jepa_planner_ros"
ln -sfn "$PWD/resource/jepa_planner_ros" "$share/ament_index/resource_index/packages/"
ln -sfn "$PWD"/{package.xml,config} "$share/jepa_planner_ros/"
# `ros2 launch` does not look behind links to directories.
ln -sfn "$PWD"/launch/*.launch.py "$share/jepa_planner_ros/launch/"
ln -sfn "$PWD"/scripts/{planner_node,sim_node,view_node} "$venv/lib/jepa_planner_ros/"
