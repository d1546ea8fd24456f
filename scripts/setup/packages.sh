#!/usr/bin/env bash
# Install the project, editable, with all that it needs, at the versions in constraints.txt.
# Usage: packages.sh VENV ROS
set -euo pipefail
venv=$1 ros=$2

# pip names every file that it touches: on a terminal show the present one, elsewhere the downloads
# that take a while.
show_progress() {
    if [[ -t 1 ]]; then
        local columns
        columns=$(tput cols 2>/dev/null || echo 80)
        while IFS= read -r line; do
            printf '\r\033[K%.*s' "$((columns - 1))" "$line"
        done
        printf '\r\033[K'
    else
        grep --line-buffered -E 'Downloading .*\(([0-9]{2,}(\.[0-9]+)? MB|.* GB)\)' || true
    fi
}

install() {
    "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off \
        --constraint constraints.txt "$@" | show_progress
}

requirements=()
if [[ $ros != sourced ]]; then
    list=requirements/ros-$ros.txt
    if [[ ! -f $list ]]; then
        known=$(ls requirements | sed -n 's/^ros-\(.*\)\.txt$/\1/p' | paste -sd' ')
        echo "There are no wheels of ROS 2 '$ros': choose ROS_DISTRO from: $known" >&2
        exit 1
    fi
    requirements=(--requirement "$list")
fi

echo "Installing Python packages into $venv (some minutes the first time: PyTorch is large)"
install "${requirements[@]}" --editable '.[ros,sim,dev]'
# Only its model files are used: neither its dependencies nor its limits on Python matter.
install --no-deps --ignore-requires-python dm-robotics-panda
