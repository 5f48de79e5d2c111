"""What can go wrong with an index.

StorageError
├── IndexUnusable        the database cannot be used
│   ├── IndexDamaged     it is broken; being derived, it can be made again
│   └── IndexTooNew      a newer version of Retinue wrote it
└── QmdFailed            the QMD program is not there, or did not do what it was asked
ModelError
└── EmbeddingFailed      texts could not be turned into vectors
"""

from __future__ import annotations

from retinue.core.errors import ModelError, StorageError


class IndexUnusable(StorageError):
    """The database cannot be used."""


class IndexDamaged(IndexUnusable):
    """The database is broken; everything in it can be made again from the notes."""


class IndexTooNew(IndexUnusable):
    """A newer version of Retinue wrote the database."""


class QmdFailed(StorageError):
    """The QMD program is not there, or did not do what it was asked."""


class EmbeddingFailed(ModelError):
    """Texts could not be turned into vectors."""
