#!/usr/bin/env bash
# Make the Python of the gRPC service from its .proto, with a grpcio-tools of its own.
#
# The result is committed: neither colcon nor pip then needs a compiler for protocol buffers, and a
# source tree runs as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"${PYTHON:-python3}" -m venv "$environment"
"$environment/bin/pip" install --quiet grpcio-tools==1.85.1
"$environment/bin/python" -m grpc_tools.protoc --proto_path=. \
    --python_out=. --pyi_out=. --grpc_python_out=. \
    jepa_planner_ros/serving/wire/jepa_planner.proto
