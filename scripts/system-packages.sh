#!/bin/sh
# Install the system packages that tests need. Quick when they are there already.
set -eu
sh "$(dirname "$0")/install-qmd.sh"
sh "$(dirname "$0")/install-mcp-programs.sh"
sh "$(dirname "$0")/install-clawhub.sh"

missing=""
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need git git
need ssh openssh-client
need tmux tmux
need bwrap bubblewrap
need dash dash
need chromium chromium
need faketime faketime
need ip iproute2
need zsh zsh
need fish fish
need zbarimg zbar-tools

[ -z "$missing" ] && exit 0
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
    if ! command -v sudo >/dev/null 2>&1 || ! sudo -n true 2>/dev/null; then
        echo "The tests need:$missing. Install them as root, for example: apt-get install$missing" >&2
        exit 1
    fi
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "The tests need:$missing. This machine has no apt-get; install them with its own package manager." >&2
    exit 1
fi
echo "Installing system packages:$missing"
$as_root apt-get update -qq
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
