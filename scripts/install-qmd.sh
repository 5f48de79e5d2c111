#!/bin/sh
# Install the QMD program for the tests of the memory backend, into .venv/qmd. Quick when it is there already.
# Where it cannot be installed this says why and still succeeds: those tests then skip.
set -u
QMD_VERSION=2.8.3
SQLITE_VEC_VERSION=0.1.9
NODE_MAJOR=24
LEAST_NODE=22

root=$(cd "$(dirname "$0")/.." && pwd)
folder="$root/.venv/qmd"
stamp="$folder/.installed-$QMD_VERSION"
[ -x "$folder/bin/qmd" ] && [ -e "$stamp" ] && exit 0

give_up() {
    echo "QMD was not installed: $1. The tests that run the real program will be skipped." >&2
    mkdir -p "$folder" && echo "$1" >"$folder/why-not"
    exit 0
}

command -v npm >/dev/null 2>&1 || give_up "this machine has no npm"
case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) platform=linux-x64 ;;
    Linux-aarch64) platform=linux-arm64 ;;
    Darwin-arm64) platform=darwin-arm64 ;;
    *) give_up "there is no build of it for $(uname -s) on $(uname -m)" ;;
esac

# Keyword search needs no language model, so the optional packages (hundreds of megabytes of model runtimes) stay away.
packages="@tobilu/qmd@$QMD_VERSION sqlite-vec-$platform@$SQLITE_VEC_VERSION"
node=$(command -v node || true)
major=$([ -n "$node" ] && "$node" -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
if [ "$major" -lt "$LEAST_NODE" ]; then
    packages="$packages node-$platform@$NODE_MAJOR"
    node="$folder/node_modules/node-$platform/bin/node"
fi

echo "Installing QMD $QMD_VERSION for the tests into .venv/qmd"
mkdir -p "$folder/bin" && rm -f "$folder/why-not"
log="$folder/install.log"
limit=$(command -v timeout >/dev/null 2>&1 && echo "timeout 90" || true)
# shellcheck disable=SC2086
if ! $limit npm install --prefix "$folder" --omit=optional --ignore-scripts --no-audit --no-fund --no-save \
    --fetch-retries=1 --fetch-timeout=30000 $packages >"$log" 2>&1; then
    give_up "npm could not install it ($(grep -m 1 'error' "$log" || echo "see $log"))"
fi
printf '#!/bin/sh\nPATH="%s:$PATH" exec "%s" "%s" "$@"\n' "$(dirname "$node")" "$node" \
    "$folder/node_modules/@tobilu/qmd/bin/qmd" >"$folder/bin/qmd"
chmod +x "$folder/bin/qmd"
"$folder/bin/qmd" --version >>"$log" 2>&1 || give_up "it does not run here ($(tail -n 1 "$log"))"
touch "$stamp"
