"""Safe unpacking of skills from archives and Git repositories: unsafe names, links and too much data are refused."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Iterable

from retinue.core.errors import SkillError
from retinue.security.untrusted_text import literal
from retinue.skills.integrity.contents import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_NAME_SHOWN,
    MAX_TOTAL_BYTES,
    SKIPPED_NAMES,
    SkillContent,
    describe_limits,
)
from retinue.storage.files.descriptors import fold_name

_MAX_PATH_BYTES = 1_024
_MAX_PART_BYTES = 255
_DEVICES = frozenset(("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))))
_DAMAGES = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    NotImplementedError,
    EOFError,
    OSError,
    RuntimeError,
)
_FORBIDDEN = frozenset('\\:*?"<>|')


def check_entry_name(name: str) -> str:
    """Return the name of an archive entry if it is a plain relative path; raise `SkillError` otherwise."""
    parts = name.split("/")
    if (
        not name
        or not name.isprintable()
        or len(name.encode("utf-8", "surrogatepass")) > _MAX_PATH_BYTES
        or any(not _is_plain(part) for part in parts)
    ):
        raise SkillError(
            f"The archive contains an entry with the unsafe name {literal(name, MAX_NAME_SHOWN)!r}. "
            "Nothing was installed."
        )
    return name


def _is_plain(part: str) -> bool:
    return (
        part not in ("", ".", "..")
        and not _FORBIDDEN & set(part)
        and part[-1] not in ". "
        and part[0] not in "~ "
        and len(part.encode("utf-8", "surrogatepass")) <= _MAX_PART_BYTES
        and part.split(".")[0].casefold() not in _DEVICES
        and fold_name(part) not in SKIPPED_NAMES
        and not any("\ud800" <= letter <= "\udfff" for letter in part)
    )


def check_names(names: Iterable[str]) -> None:
    """Refuse names that are unsafe, or equal on a file system that ignores case, or a file and a folder at once."""
    taken: dict[str, str] = {}
    for name in names:
        check_entry_name(name)
        folded = fold_name(name)
        if folded in taken:
            raise SkillError(f"The archive contains {name!r} and {taken[folded]!r}, which name the same file.")
        taken[folded] = name
    for folded, name in taken.items():
        parts = folded.split("/")
        if any("/".join(parts[:count]) in taken for count in range(1, len(parts))):
            raise SkillError(f"The archive contains a file and a folder of the same name, above {name!r}.")


def unzip(data: bytes, below: str = "", *, inside_top: bool = False) -> dict[str, SkillContent]:
    """Return the files of a ZIP archive (of its folder `below`) in memory; raise `SkillError` if one is unsafe.

    With `inside_top`, `below` is inside the only folder at the top, as in archives of GitHub.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if len(entries) > MAX_FILES:
                raise SkillError(describe_limits())
            for folder in archive.infolist():
                if folder.is_dir():
                    check_entry_name(folder.orig_filename[:-1])
            check_names(entry.orig_filename for entry in entries)
            files: dict[str, SkillContent] = {}
            left = MAX_TOTAL_BYTES
            top = {entry.orig_filename.partition("/")[0] for entry in entries} if inside_top else set()
            prefix = "".join(f"{part}/" for part in (*top, below.strip("/")) if part and part != ".")
            for entry in entries:
                if not entry.orig_filename.startswith(prefix):
                    continue
                content = _read_entry(archive, entry, left)
                left -= len(content.data)
                files[entry.orig_filename[len(prefix) :]] = content
    except _DAMAGES as error:
        raise SkillError(f"The archive cannot be read: {error}. Download it again.") from None
    return strip_common_folder(files)


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, left: int) -> SkillContent:
    mode = entry.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise SkillError(f"The archive contains a link or a device, {entry.orig_filename!r}. Nothing was installed.")
    if entry.flag_bits & 1:
        raise SkillError("The archive is encrypted, so its content cannot be checked. Nothing was installed.")
    limit = min(MAX_FILE_BYTES, left)
    with archive.open(entry) as opened:
        data = opened.read(limit + 1)  # the declared size is not reliable
    if len(data) > limit:
        raise SkillError(describe_limits())
    return SkillContent(data, bool(mode & 0o100))


def strip_common_folder(files: dict[str, SkillContent]) -> dict[str, SkillContent]:
    """Remove the folder that contains everything, if the skill is one level below the top."""
    if "SKILL.md" in files:
        return files
    tops = {name.partition("/")[0] for name in files}
    if len(tops) == 1 and f"{(top := tops.pop())}/SKILL.md" in files:
        return {name[len(top) + 1 :]: file for name, file in files.items()}
    return files


def fetch_git(address: str, reference: str = "", below: str = "") -> tuple[dict[str, SkillContent], str]:
    """Return the files of a commit, and its id; hooks and submodules of the repository have no effect."""
    if reference.startswith("-") or address.startswith("-"):
        raise SkillError("The name of a repository or of a reference cannot begin with '-'.")
    with tempfile.TemporaryDirectory(prefix="retinue-git-") as temporary:
        _git(temporary, "init", "--quiet", "--bare", ".")
        _git(temporary, "fetch", "--quiet", "--depth=1", "--no-tags", "--", address, reference or "HEAD")
        commit = _git(temporary, "rev-parse", "FETCH_HEAD").decode().strip()
        tree = f"{commit}:{below.strip('/')}" if below else commit
        if below and _type_of(temporary, tree) != "tree":
            raise SkillError(f"The repository has no folder '{literal(below, 200)}'. Name another with --path.")
        # The limits count only the skill, because it may be in a large repository.
        return unzip(_git(temporary, "archive", "--format=zip", tree)), commit


def _type_of(folder: str, name: str) -> str:
    try:
        return _git(folder, "cat-file", "-t", name).decode().strip()
    except SkillError:
        return ""


def _git(folder: str, *arguments: str) -> bytes:
    safe = ("-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "core.fsmonitor=false")
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": os.environ.get("HOME", folder),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C",
    }
    try:
        done = subprocess.run(
            ["git", *safe, *arguments], cwd=folder, env=environment, capture_output=True, timeout=300, check=False
        )
    except FileNotFoundError:
        raise SkillError("The program `git` is not on PATH. Install it, or download the skill as a ZIP file.") from None
    except subprocess.TimeoutExpired:
        raise SkillError("The Git repository did not answer within 5 minutes. Check the network and repeat.") from None
    if done.returncode:
        said = literal(done.stderr.decode(errors="replace").strip().rstrip("."), 500)
        raise SkillError(f"Git could not fetch the skill: {said}. Check the address, the reference and the network.")
    return done.stdout
