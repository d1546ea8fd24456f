#!/usr/bin/env bash
# Make an empty virtual environment. With a sourced ROS 2 it sees the system's packages as well.
# Usage: environment.sh PYTHON VENV ROS
set -euo pipefail
python=$1 venv=$2 ros=$3

options=(--clear)
[[ $ros == sourced ]] && options+=(--system-site-packages)

echo "Making $venv with $("$python" --version)"
"$python" -m venv "${options[@]}" "$venv"
rm -rf build/msg  # built against the environment that was here before

if [[ $ros == sourced ]]; then
    # The interfaces get a set-up file of their own, which tells ROS that they are here.
    echo "source '$PWD/$venv/share/jepa_planner_msgs/local_setup.bash'" >>"$venv/bin/activate"
fi
