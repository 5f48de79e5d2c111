#!/bin/sh
# Create the virtual environment and install Retinue, editable, with the tested set of dependencies.
set -eu
: "${PYTHON:=python3}" "${VENV:=.venv}"

if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Retinue needs Python 3.11 or newer; '$PYTHON' is not. Set PYTHON, as in: make run PYTHON=python3.12" >&2
    exit 1
fi
if [ ! -x "$VENV/bin/python" ]; then
    echo "Creating $VENV …"
    "$PYTHON" -m venv "$VENV" || {
        echo "Could not create $VENV. On Debian and Ubuntu: apt-get install python3-venv" >&2
        exit 1
    }
fi
echo "Installing Retinue and its dependencies into $VENV …"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1" -c constraints.txt
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]' --group dev
