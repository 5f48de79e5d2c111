"""Errors of the memory index.

StorageError
├── IndexUnusable        the database cannot be used
│   ├── IndexDamaged     it is corrupt and can be rebuilt from the notes
│   └── IndexTooNew      a newer version of Retinue wrote it
└── QmdFailed            the QMD program is missing or failed
ModelError
└── EmbeddingFailed      texts could not be embedded
"""

from __future__ import annotations

from retinue.core.errors import ModelError, StorageError


class IndexUnusable(StorageError):
    """The database cannot be used."""


class IndexDamaged(IndexUnusable):
    """The database is corrupt; all of it can be rebuilt from the notes."""


class IndexTooNew(IndexUnusable):
    """A newer version of Retinue wrote the database."""


class QmdFailed(StorageError):
    """The QMD program is missing or failed."""


class EmbeddingFailed(ModelError):
    """Texts could not be embedded."""
