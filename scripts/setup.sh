#!/bin/sh
# Create the virtual environment and install Retinue, editable, with the tested set of dependencies.
# The argument is `run` for what running needs, `dev` for everything that tests need, `servers` for the model server of
# another project that `make test-servers` needs besides, or `bench` for the attacks that `make bench-full` uses.
set -eu
: "${PYTHON:=python3}" "${VENV:=.venv}"
purpose=${1:-dev}

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
# One line that changes on a terminal; what the installer printed is kept, and shown if it fails.
log=$VENV/install.log
install() {
    : >"$log"
    "$VENV/bin/python" -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt "$@" \
        >"$log" 2>&1 &
    pid=$!
    if [ -t 1 ]; then
        while kill -0 $pid 2>/dev/null; do
            step=$(grep -E '^ *(Collecting|Downloading|Obtaining|Preparing|Installing|Building)' "$log" | tail -n 1)
            printf '\r\033[K  %.70s' "$(echo $step)"
            sleep 0.3
        done
        printf '\r\033[K'
    fi
    wait $pid || {
        grep -v "^WARNING: Location .* is ignored" "$log" | tail -n 25 >&2
        echo "The installation failed; everything it printed is in $log. Check the network connection, then try again." >&2
        exit 1
    }
}
# They need other releases of some packages than the tests. Their environments see the packages of this one and hold
# only those that differ.
install_beside() {
    "$VENV/bin/python" -m venv --without-pip "$VENV/$1"
    "$VENV/bin/python" - "$VENV/$1" <<'END'
import sys, sysconfig
from pathlib import Path
own = Path(sysconfig.get_path("purelib", vars={"base": sys.argv[1]}))
(own / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
END
    "$VENV/bin/python" -m pip --python "$VENV/$1/bin/python" install --quiet --disable-pip-version-check \
        -c "constraints-$1.txt" --group "$1"
}
case $purpose in
run)
    echo "Installing Retinue and what it needs to run into $VENV (about 300 MB) …"
    install -e '.[local]'
    echo "The command is $VENV/bin/retinue. To call it as \`retinue\`: source $VENV/bin/activate"
    ;;
dev)
    echo "Installing Retinue and everything its tests need into $VENV (about 1 GB) …"
    install --upgrade "pip>=25.1"
    # The page is built afterwards, with the node that was installed for the tests: pip would fetch another one.
    RETINUE_SKIP_PAGE=1 install -e '.[all]' --group dev
    "$VENV/bin/python" scripts/build_page.py --check ||
        echo "The control page was not built, so its tests will fail. Try again with: make page" >&2
    ;;
servers)
    echo "Installing LiteLLM's proxy into $VENV/servers (about 300 MB) …"
    install_beside servers
    ;;
bench)
    echo "Installing agentdojo into $VENV/bench (about 200 MB) …"
    install_beside bench
    ;;
*)
    echo "usage: scripts/setup.sh run|dev|servers|bench" >&2
    exit 2
    ;;
esac
