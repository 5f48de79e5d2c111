"""Settings of the memory index and its search."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from retinue.security.secrets import SecretValue
from retinue.settings import Duration, Settings, key


class BatchSettings(Settings):
    """Embedding through the batch API of OpenAI or of a compatible endpoint."""

    enabled: bool = key(False)
    """Whether it is used for 100 texts or more."""
    wait: bool = key(True)
    """Whether `retinue memory index` waits for the result."""
    concurrency: int = key(2, ge=1)
    """Maximum number of concurrent batches."""
    poll_interval_ms: int = key(2_000, ge=1)
    """Initial polling interval in milliseconds; later polls are less frequent."""
    timeout_minutes: int = key(60, ge=1)
    """Time limit of a batch; after it the texts are embedded directly."""


class RemoteEmbedding(Settings):
    """The embedding endpoint."""

    base_url: str | None = key(None)
    """Its address."""
    api_key: SecretValue | None = key(None)
    """Its key."""
    headers: dict[str, SecretValue] = key({})
    """Additional HTTP headers."""
    batch: BatchSettings = key(BatchSettings)
    """Embedding through the batch API of the provider."""


class LocalEmbedding(Settings):
    """A model on this machine."""

    model_path: str | None = key(None)
    """A .gguf or .onnx file, or a folder with one. Default: the built-in model."""
    model_cache_dir: str | None = key(None)
    """The folder of a relative `modelPath`. Default: `models` in the home."""


class VectorStore(Settings):
    """Storage of vectors."""

    enabled: bool = key(True)
    """Whether vectors are searched."""


class MemoryStore(Settings):
    """Storage of the index."""

    path: str | None = key(None)
    """The database file, absolute or relative to the home. Default: `memory/<agent>.sqlite` in the home."""
    vector: VectorStore = key(VectorStore)
    """Storage of vectors."""


class ChunkingSettings(Settings):
    """Chunking of files for the index."""

    tokens: int = key(400, ge=8)
    """Chunk size in tokens."""
    overlap: int = key(80, ge=0)
    """Overlap of neighbouring chunks in tokens."""


class SyncSessions(Settings):
    """When a growing transcript is indexed."""

    delta_bytes: int = key(100_000, ge=0)
    """After this many new bytes."""
    delta_messages: int = key(50, ge=0)
    """After this many new messages."""
    post_compaction_force: bool = key(True)
    """Whether a compaction triggers it at once."""


class SyncSettings(Settings):
    """When the index is updated."""

    on_session_start: bool = key(True)
    """When a session starts."""
    on_search: bool = key(True)
    """Before a search, if it is out of date."""
    watch: bool = key(True)
    """When a file changes."""
    watch_debounce_ms: int = key(1_500, ge=0)
    """How long to wait after a change, in milliseconds."""
    interval_minutes: int = key(0, ge=0)
    """Interval in minutes; 0 means off."""
    sessions: SyncSessions = key(SyncSessions)
    """When a growing transcript is indexed."""


class Diversity(Settings):
    """Diversity of results (MMR)."""

    enabled: bool = key(False)
    """Whether they are."""
    lambda_: float = key(0.7, ge=0, le=1, name="lambda")
    """1 is relevance only, 0 is diversity only."""


class TemporalDecay(Settings):
    """Temporal decay: lower scores for older notes."""

    enabled: bool = key(False)
    """Whether they do."""
    half_life_days: float = key(30, gt=0)
    """Days after which the score of a note is halved."""


class HybridSettings(Settings):
    """Hybrid search: how vector search and text search are combined."""

    enabled: bool = key(True)
    """Whether both are used."""
    fusion: Literal["weighted", "rrf"] = key("weighted")
    """How results are combined: by weighted score, or by rank (reciprocal rank fusion)."""
    vector_weight: float = key(0.7, ge=0, le=1)
    """Weight of vector search."""
    text_weight: float = key(0.3, ge=0, le=1)
    """Weight of text search."""
    candidate_multiplier: int = key(4, ge=1, le=20)
    """Number of candidates per result."""
    mmr: Diversity = key(Diversity)
    """Diversity of results (MMR)."""
    temporal_decay: TemporalDecay = key(TemporalDecay)
    """Temporal decay: lower scores for older notes."""


class QuerySettings(Settings):
    """Search results."""

    max_results: int = key(6, ge=1)
    """How many hits."""
    min_score: float = key(0.35, ge=0, le=1)
    """Minimum score of a result, unless it contains an exact phrase or identifier or is the best text match."""
    max_snippet_chars: int = key(700, ge=80)
    """Maximum characters of each result."""
    max_injected_chars: int = key(4_000, ge=80)
    """Maximum characters of all results together."""
    timeout_ms: int = key(4_000, ge=1)
    """Time limit of a search in milliseconds."""
    hybrid: HybridSettings = key(HybridSettings)
    """Hybrid search: how vector search and text search are combined."""


class EmbeddingCache(Settings):
    """Cache of embeddings."""

    enabled: bool = key(True)
    """Whether they are."""
    max_entries: int | None = key(None, ge=1)
    """Maximum number of entries."""


class MemoryExperiments(Settings):
    """Experimental settings."""

    session_memory: bool = key(False)
    """Whether past sessions are searched too; the same as `sessions` in `sources`."""


class RecallSettings(Settings):
    """Recall: add search results from memory to a message."""

    enabled: bool = key(True)
    """Whether recall is used, in direct chats."""
    timeout_ms: int = key(150, ge=1)
    """Time limit in milliseconds; the message waits for it."""
    standing: bool = key(True)
    """Whether instructions and preferences in your messages are written to memory/standing.md and added to messages."""


class MemorySearchSettings(Settings):
    """How an agent's memory is indexed and searched."""

    enabled: bool = key(True)
    """Whether memory is indexed and searched."""
    sources: list[Literal["memory", "sessions"]] = key(["memory"])
    """Sources of the index: memory files and past sessions."""
    extra_paths: list[str] = key([])
    """Additional Markdown files and folders."""
    provider: str = key("auto")
    """The embedding provider: `local`, `openai`, `openai-compatible`, `gemini`, `voyage`, `mistral`, `ollama`, one of a
    plugin, or `none`. `auto` uses `remote` if it has a key or URL, else the built-in model."""
    fallback: str = key("none")
    """The embedding provider that is used if `provider` fails."""
    model: str | None = key(None)
    """The embedding model. Default: that of the provider."""
    remote: RemoteEmbedding = key(RemoteEmbedding)
    """The embedding endpoint."""
    local: LocalEmbedding = key(LocalEmbedding)
    """A model on this machine."""
    store: MemoryStore = key(MemoryStore)
    """Storage of the index."""
    chunking: ChunkingSettings = key(ChunkingSettings)
    """Chunking of files for the index."""
    sync: SyncSettings = key(SyncSettings)
    """When the index is updated."""
    query: QuerySettings = key(QuerySettings)
    """Search results."""
    recall: RecallSettings = key(RecallSettings)
    """Recall: add search results from memory to a message."""
    cache: EmbeddingCache = key(EmbeddingCache)
    """Cache of embeddings."""
    experimental: MemoryExperiments = key(MemoryExperiments)
    """Experimental settings."""

    def index_file(self, home: Path, agent: str) -> Path:
        """The database of an agent's index."""
        if self.store.path and self.store.path.strip():
            return home / Path(self.store.path.replace("{agentId}", agent)).expanduser()
        return home / "memory" / f"{agent}.sqlite"


class ScopeMatch(Settings):
    """Which sessions a rule applies to."""

    channel: str | None = key(None)
    """The channel."""
    chat_type: Literal["direct", "group", "channel"] | None = key(None)
    """The kind of chat."""
    key_prefix: str | None = key(None)
    """Prefix of the session key without the agent."""
    raw_key_prefix: str | None = key(None)
    """Prefix of the whole session key."""


class ScopeRule(Settings):
    """Whether some sessions may search memory."""

    action: Literal["allow", "deny"] = key("allow")
    """Whether they may."""
    match: ScopeMatch = key(ScopeMatch)
    """Which sessions."""


class ScopeSettings(Settings):
    """Which sessions may search memory; the first matching rule decides."""

    default: Literal["allow", "deny"] = key("deny")
    """The decision if no rule matches."""
    rules: list[ScopeRule] = key([ScopeRule(match=ScopeMatch(chat_type="direct"))])
    """The rules."""


class QmdPath(Settings):
    """An additional folder for QMD."""

    path: str = key(reload="restart")
    """The folder."""
    name: str | None = key(None, reload="restart")
    """Name of the collection."""
    pattern: str = key("**/*.md", reload="restart")
    """Pattern of its files."""


class QmdSessions(Settings):
    """Whether QMD indexes past sessions."""

    enabled: bool = key(True, reload="restart")
    """Whether it does."""
    export_dir: str | None = key(None, reload="restart")
    """Folder of the sessions exported as Markdown, with a subfolder for each agent. Default: in the home."""
    retention_days: int = key(30, reload="restart", ge=0)
    """Retention time of exported sessions."""


class QmdUpdate(Settings):
    """When QMD updates its index."""

    interval: Duration = key(timedelta(minutes=5), reload="restart")
    """Interval of updates; 0 means never."""
    debounce_ms: int = key(15_000, reload="restart", ge=0)
    """Delay after a change, in milliseconds."""
    on_boot: bool = key(True, reload="restart")
    """Whether it is updated when memory is opened."""
    startup: Literal["off", "idle", "immediate"] = key("off", reload="restart")
    """When memory is opened: at its first use, after a delay, or at start."""
    startup_delay_ms: int = key(120_000, reload="restart", ge=0)
    """Delay of `idle` in milliseconds."""
    wait_for_boot_sync: bool = key(False, reload="restart")
    """Whether the first message waits for the update; otherwise it waits at most two seconds."""
    embed_interval: Duration = key(timedelta(minutes=60), reload="restart")
    """Interval of embedding, if `searchMode` needs vectors; 0 means never."""
    command_timeout_ms: int = key(30_000, reload="restart", ge=1)
    """Time limit of a command in milliseconds."""
    update_timeout_ms: int = key(120_000, reload="restart", ge=1)
    """Time limit of an update in milliseconds."""
    embed_timeout_ms: int = key(120_000, reload="restart", ge=1)
    """Time limit of embedding in milliseconds."""


class QmdLimits(Settings):
    """Search results of QMD."""

    max_results: int = key(6, reload="restart", ge=1)
    """How many hits."""
    max_snippet_chars: int = key(700, reload="restart", ge=1)
    """Characters of each."""
    max_injected_chars: int = key(4_000, reload="restart", ge=1)
    """Maximum characters of all results together."""
    timeout_ms: int = key(4_000, reload="restart", ge=1)
    """Time limit of a search in milliseconds."""


class QmdSettings(Settings):
    """The QMD program as memory backend."""

    command: str = key("qmd", reload="restart")
    """The program: a name in PATH, or an absolute path."""
    search_mode: Literal["search", "vsearch", "query"] = key("search", reload="restart")
    """Search mode: text search, which needs no model; vector search; or both with reranking by a model."""
    include_default_memory: bool = key(True, reload="restart")
    """Whether the memory files of the workspace are indexed."""
    paths: list[QmdPath] = key([], reload="restart")
    """More folders."""
    sessions: QmdSessions = key(QmdSessions)
    """Whether QMD indexes past sessions."""
    update: QmdUpdate = key(QmdUpdate)
    """When QMD updates its index."""
    limits: QmdLimits = key(QmdLimits)
    """Search results of QMD."""
    scope: ScopeSettings = key(ScopeSettings)
    """Which sessions may search memory."""


class MemorySettings(Settings):
    """Memory settings that all agents share."""

    backend: str = key("builtin", reload="restart")
    """The memory backend: `builtin`, `qmd`, or one of a plugin; `plugins.slots.memory` has precedence."""
    citations: Literal["auto", "on", "off"] = key("auto")
    """Whether recalled text names its source; `auto` does in direct chats."""
    qmd: QmdSettings = key(QmdSettings)
    """The QMD program as memory backend."""
