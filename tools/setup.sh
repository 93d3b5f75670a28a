#!/bin/sh
# Makes .venv with every dependency pinned by version and hash, and installs rumormill into it.
# Uses uv where it is on the PATH, else Python's own venv and pip. Safe to repeat.
set -eu
cd "$(dirname "$0")/.."
venv=.venv

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: rumormill needs Python 3.11 or newer and finds none; set PYTHON=/path/to/it" >&2
    exit 1
}

if ! is_new_enough "$venv/bin/python"; then
    python=$(find_python)
    rm -rf "$venv"
    if command -v uv >/dev/null 2>&1; then
        uv venv --quiet --python "$python" "$venv"
    elif ! "$python" -m venv "$venv"; then
        rm -rf "$venv"
        echo "setup: $python has no venv module with pip; install it (python3-venv) or uv" >&2
        exit 1
    fi
fi

if command -v uv >/dev/null 2>&1; then
    uv pip sync --quiet --python "$venv/bin/python" --require-hashes requirements/dev.txt
    uv pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
else
    pip="$venv/bin/python -m pip --disable-pip-version-check"
    $pip install --quiet --require-hashes --requirement requirements/dev.txt
    $pip install --quiet --no-deps --no-build-isolation --editable .
fi
