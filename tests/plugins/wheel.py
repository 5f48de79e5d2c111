"""Writing the sample plugin as a wheel, without a build tool: what pip installs is the same."""

from __future__ import annotations

import zipfile
from pathlib import Path

SAMPLE = Path(__file__).parent / "sample"
_FACTS = "sample_desk-1.2.0.dist-info"


def write_wheel(folder: Path) -> Path:
    """Write the wheel of the sample plugin into a folder; returns its path."""
    files = {
        path.relative_to(SAMPLE).as_posix(): path.read_bytes()
        for path in sorted(SAMPLE.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    files[f"{_FACTS}/METADATA"] = b"Metadata-Version: 2.1\nName: sample-desk\nVersion: 1.2.0\n"
    files[f"{_FACTS}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{_FACTS}/entry_points.txt"] = b"[retinue]\nsample-desk = sample_desk\n"
    files[f"{_FACTS}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{_FACTS}/RECORD")).encode()
    wheel = folder / "sample_desk-1.2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel
