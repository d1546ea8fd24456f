#!/usr/bin/env bash
# See to what pip cannot bring: venv and headers for PYTHON, a C++ compiler, headless OpenGL.
# As root it installs what is missing; else it names it and stops.
# Usage: system_packages.sh PYTHON
set -euo pipefail
python=$1

if ! command -v "$python" >/dev/null; then
    echo "$python is not installed. Name a Python from 3.10 to 3.13: make PYTHON=python3.12" >&2
    exit 1
fi
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $version in
    3.10 | 3.11 | 3.12 | 3.13) ;;
    *)
        echo "$python is Python $version, but 3.10 to 3.13 is needed." \
            "Name another one: make PYTHON=python3.12" >&2
        exit 1
        ;;
esac

has_library() { "$python" -c "import ctypes; ctypes.CDLL('$1')" 2>/dev/null; }
has_header() {
    "$python" -c "import pathlib, sysconfig
raise SystemExit(not pathlib.Path(sysconfig.get_path('include'), 'Python.h').is_file())"
}
has_opengl() {
    has_library libOSMesa.so.8 || {
        has_library libEGL.so.1 &&
            { has_library libEGL_nvidia.so.0 || compgen -G '/usr/lib/*/dri/*_dri.so' >/dev/null; }
    }
}

missing=()
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("python$version-venv")
has_header || missing+=("python$version-dev")
command -v c++ >/dev/null || missing+=(g++)
has_opengl || missing+=(libegl1 libgl1-mesa-dri)
((${#missing[@]})) || exit 0

if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "Installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # The lists are missing or old on a fresh machine: then the first try fails.
    apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
        apt-get update -qq
        apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
    }
else
    echo "Install these first, then try again: sudo apt-get install -y ${missing[*]}" >&2
    exit 1
fi
