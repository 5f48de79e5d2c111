"""Runs the tests of the modules on which safety rests, and fails unless every branch of these was taken.

The modules decide what may run, which file is opened, which address is dialled, and what survives a crash.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]

MODULES = (
    # policy
    "tools/policy.py",
    "tools/elevated.py",
    # paths
    "storage/files/root.py",
    "storage/files/openat.py",
    "storage/files/openat.py",
    "storage/files/descriptors.py",
    "storage/files/file_info.py",
    "toolkit/files/paths.py",
    # network
    "security/network.py",
    "security/fetch.py",
    "security/fetch.py",
    "security/network.py",
    "security/checked_transport.py",
    # journals
    "dispatch/inbox.py",
    "runtime/turns/ledger.py",
    "sessions/repair.py",
    "storage/auditlog.py",
)
TESTS = (
    "tests/tools/test_policy.py",
    "tests/tools/test_elevated.py",
    "tests/storage",
    "tests/toolkit/test_paths.py",
    "tests/security/test_addresses.py",
    "tests/security/test_network.py",
    "tests/dispatch/test_inbox.py",
    "tests/sessions/test_recovery.py",
    "tests/sessions/test_repair.py",
)


def main() -> int:
    """Run the tests under coverage and tell about every branch that was not taken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", nargs="*", default=TESTS, help="other tests than the usual ones")
    options = parser.parse_args()
    source = HERE / "src" / "retinue"
    missing = [name for name in MODULES if not (source / name).is_file()]
    if missing:
        print(f"These modules are gone; correct {__file__}: {', '.join(missing)}")
        return 1
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "coverage"
        environment = {**os.environ, "COVERAGE_FILE": str(data)}
        include = ",".join(str(source / name) for name in MODULES)
        command = [
            sys.executable,
            "-m",
            "coverage",
            "run",
            "--branch",
            f"--include={include}",
            "-m",
            "pytest",
            "-q",
            *options.tests,
        ]
        if subprocess.run(command, cwd=HERE, env=environment, check=False).returncode:
            return 1
        report = Path(place) / "report.json"
        writing = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)]
        subprocess.run(writing, cwd=HERE, env=environment, check=True)
        return tell(json.loads(report.read_text())["files"])


def tell(files: dict[str, dict[str, object]]) -> int:
    """Print what was not taken; the exit code tells whether that is nothing."""
    found = {str(Path(name).relative_to("src/retinue")): report for name, report in files.items()}
    failed = 0
    for name in MODULES:
        report = found.get(name)
        if report is None:
            failed += 1
            print(f"{name}: no test imports it")
            continue
        lines, branches = report["missing_lines"], report["missing_branches"]
        if lines or branches:
            failed += 1
            print(f"{name}: lines {lines}, branches {branches}")
    print(f"branch coverage: {len(MODULES) - failed} of {len(MODULES)} modules complete")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
