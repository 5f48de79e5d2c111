"""Encryption of a repository of backups with a passphrase, by the library `cryptography` (extra `backup`).

`encryption.json` holds a random key, encrypted with a key that scrypt derives from the passphrase. Objects are
encrypted with ChaCha20-Poly1305 in frames of 1 MB; each frame is bound to its position and to whether it is the last.
An object is named by an HMAC of its content's hash, so that names do not tell which files are stored.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from retinue.core.errors import UsageError
from retinue.storage.files import write_atomic
from retinue.storage.object_store import CHUNK_BYTES, BackupFailed

KEY_FILE = "encryption.json"
MISSING = "Encrypted backups need the library cryptography: pip install 'retinue[backup]'"
_MAGIC = b"RBE1"
_NONCE, _TAG, _KEY = 12, 16, 32
_SCRYPT = {"n": 2**15, "r": 8, "p": 1}


class RepositoryCipher:
    """Encrypts and decrypts what is stored in a repository."""

    def __init__(self, key: bytes) -> None:
        self._cipher = _make_cipher(key[:_KEY])
        self._naming = key[_KEY:]

    def name_of(self, digest: str) -> str:
        return hmac.digest(self._naming, digest.encode(), sha256).hex()

    def stored_size(self, size: int) -> int:
        frames = max(1, -(-size // CHUNK_BYTES))
        return len(_MAGIC) + size + frames * (_NONCE + _TAG)

    def encrypt(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        yield _MAGIC
        number, waiting = 0, b""
        for chunk in chunks:
            waiting += chunk
            while len(waiting) > CHUNK_BYTES:
                yield self._seal(waiting[:CHUNK_BYTES], number, last=False)
                waiting = waiting[CHUNK_BYTES:]
                number += 1
        yield self._seal(waiting, number, last=True)

    def _seal(self, data: bytes, number: int, *, last: bool) -> bytes:
        nonce = secrets.token_bytes(_NONCE)
        sealed: bytes = self._cipher.encrypt(nonce, data, _place(number, last=last))
        return nonce + sealed

    def decrypt(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the content; raise `BackupFailed` if it was changed, shortened or encrypted with another key."""
        from cryptography.exceptions import InvalidTag

        if file.read(len(_MAGIC)) != _MAGIC:
            raise BackupFailed("it is not encrypted as the repository is")
        frame_bytes = _NONCE + CHUNK_BYTES + _TAG
        frame, number = file.read(frame_bytes), 0
        while True:
            following = file.read(frame_bytes)
            try:
                yield self._cipher.decrypt(frame[:_NONCE], frame[_NONCE:], _place(number, last=not following))
            except (InvalidTag, ValueError) as error:
                raise BackupFailed("it is damaged or was encrypted with another key") from error
            if not following:
                return
            frame, number = following, number + 1


def _place(number: int, *, last: bool) -> bytes:
    return number.to_bytes(8, "big") + bytes([last])


def _make_cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    except ImportError as error:
        raise UsageError(f"{MISSING}.") from error
    return ChaCha20Poly1305(key)


def _derive(passphrase: str, salt: bytes) -> bytes:
    import hashlib

    return hashlib.scrypt(passphrase.encode(), salt=salt, maxmem=64 * 1024**2, dklen=_KEY, **_SCRYPT)


def make_key(folder: Path, passphrase: str) -> RepositoryCipher:
    """Create the key of a new repository."""
    if not passphrase:
        raise UsageError("The passphrase is empty.")
    key, salt, nonce = secrets.token_bytes(2 * _KEY), secrets.token_bytes(16), secrets.token_bytes(_NONCE)
    sealed = _make_cipher(_derive(passphrase, salt)).encrypt(nonce, key, b"retinue-backup")
    content = {"version": 1, "kdf": "scrypt", **_SCRYPT, "salt": salt.hex(), "nonce": nonce.hex(), "key": sealed.hex()}
    write_atomic(folder / KEY_FILE, json.dumps(content, indent=2).encode() + b"\n")
    return RepositoryCipher(key)


def open_key(folder: Path, passphrase: str) -> RepositoryCipher:
    """Return the cipher of a repository; raise `UsageError` if the passphrase is wrong."""
    from_file = json.loads((folder / KEY_FILE).read_bytes())
    try:
        salt, nonce, sealed = (bytes.fromhex(from_file[name]) for name in ("salt", "nonce", "key"))
    except (KeyError, TypeError, ValueError) as error:
        raise BackupFailed(f"{folder / KEY_FILE} is damaged, so the backups cannot be read.") from error
    cipher = _make_cipher(_derive(passphrase, salt))
    from cryptography.exceptions import InvalidTag

    try:
        return RepositoryCipher(cipher.decrypt(nonce, sealed, b"retinue-backup"))
    except InvalidTag as error:
        raise UsageError(f"The passphrase of the backups in {folder} is wrong.") from error
