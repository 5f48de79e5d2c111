"""What stores need of the database of a home, which is a file of SQLite or the PostgreSQL of a team.

Statements are written in the part of SQL that both understand, with `?` or `:name` for values: `ON CONFLICT (…) DO …`
instead of `INSERT OR …`, flags compared with 1, and no functions on JSON but `json_extract`, `json_remove` and
`json_valid`, which PostgreSQL has under the same names. `INDEXED BY` is removed for PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from retinue.core.errors import StorageError

Value = str | int | float | bytes | None
Values = Sequence[Value] | Mapping[str, Value]


class Row(Protocol):
    """A row, whose values have numbers and names."""

    def __getitem__(self, key: int | str, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...

    def keys(self) -> list[str]:
        """Return the names of the columns."""


class Result(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that were changed."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class StateChange(Protocol):
    """Runs statements that are stored together, or not at all."""

    def execute(self, sql: str, values: Values = (), /) -> Result: ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Value]], /) -> Result: ...


class Database(Protocol):
    """A database that several processes share. Any thread may use it, one at a time.

    `notes` are messages for people about damage that was found. `problem` says why nothing can be changed; rows can
    still be read then.
    """

    @property
    def notes(self) -> Sequence[str]: ...

    @property
    def problem(self) -> StorageError | None: ...

    def read(self, sql: str, values: Sequence[Value] = ()) -> Sequence[Row]:
        """Return the rows of a query."""

    def change(self, *, durable: bool = False) -> AbstractContextManager[StateChange]:
        """Run a transaction: it is committed at the end of the block, or rolled back if the block raises.

        Other processes wait during the transaction, so the block must not await. With `durable` the commit waits for
        the disk in any case.
        """

    def degrade(self, problem: StorageError) -> None:
        """Refuse changes with `problem` until `recover` succeeds; rows can still be read."""

    def recover(self) -> bool:
        """Allow changes again if they are possible now; return whether they are allowed."""

    def close(self) -> None: ...
