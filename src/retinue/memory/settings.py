"""Settings of the memory index and its search."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from retinue.security.secret_value import SecretValue
from retinue.settings import Duration, Settings, key

Embedder = Literal["auto", "local", "openai", "openai-compatible", "gemini", "voyage", "mistral", "ollama", "none"]


class BatchSettings(Settings):
    """Embedding in bulk through the batch interface of OpenAI, or of an endpoint that speaks like it."""

    enabled: bool = key(False)
    """Whether it is used, for a hundred texts or more."""
    wait: bool = key(True)
    """Whether `retinue memory index` waits for the result."""
    concurrency: int = key(2, ge=1)
    """How many batches run at once."""
    poll_interval_ms: int = key(2_000, ge=1)
    """How often the provider is asked at first, in milliseconds; later less often."""
    timeout_minutes: int = key(60, ge=1)
    """How long a batch may take before its texts are embedded directly."""


class RemoteEmbedding(Settings):
    """The endpoint that embeds texts."""

    base_url: str | None = key(None)
    """Its address."""
    api_key: SecretValue | None = key(None)
    """Its key."""
    headers: dict[str, SecretValue] = key({})
    """Headers to send along."""
    batch: BatchSettings = key(BatchSettings)
    """Embedding in bulk through the provider's batch interface."""


class LocalEmbedding(Settings):
    """A model on this machine."""

    model_path: str | None = key(None)
    """A .gguf or .onnx file, or a folder with one; without it the built-in model."""
    model_cache_dir: str | None = key(None)
    """The folder in which a relative `modelPath` is looked for; without it `models` in the home."""


class VectorStore(Settings):
    """How vectors are kept."""

    enabled: bool = key(True)
    """Whether vectors are searched."""
    extension_path: str | None = key(None, pending=True)
    """A database extension for vectors."""


class TextStore(Settings):
    """How words are kept."""

    tokenizer: Literal["unicode61", "trigram"] = key("unicode61", pending=True)
    """How texts are cut into words."""


class MemoryStore(Settings):
    """Where the index is."""

    driver: Literal["sqlite", "postgres"] = key("sqlite", pending=True)
    """The kind of database."""
    path: str | None = key(None)
    """Its file; without it `memory/<agent>.sqlite` in the home."""
    vector: VectorStore = key(VectorStore)
    """How vectors are kept."""
    fts: TextStore = key(TextStore)
    """How words are kept."""


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
    """Whether a compaction makes it happen at once."""


class SyncSettings(Settings):
    """When the index is brought up to date."""

    on_session_start: bool = key(True)
    """When a session starts."""
    on_search: bool = key(True)
    """When a search finds it out of date."""
    watch: bool = key(True)
    """When a file changes."""
    watch_debounce_ms: int = key(1_500, ge=0)
    """How long to wait after a change, in milliseconds."""
    interval_minutes: int = key(0, ge=0)
    """Every so many minutes; 0 is off."""
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
    """How many candidates are looked at for each result."""
    mmr: Diversity = key(Diversity)
    """Diversity of results (MMR)."""
    temporal_decay: TemporalDecay = key(TemporalDecay)
    """Temporal decay: lower scores for older notes."""


class QuerySettings(Settings):
    """What a search gives back."""

    max_results: int = key(6, ge=1)
    """How many hits."""
    min_score: float = key(0.35, ge=0, le=1)
    """The score that a hit needs, unless it holds an exact phrase or identifier or is the best by words."""
    max_snippet_chars: int = key(700, ge=80)
    """Characters of each hit."""
    max_injected_chars: int = key(4_000, ge=80)
    """Characters of all hits together."""
    timeout_ms: int = key(4_000, ge=1)
    """How long a search may take, in milliseconds."""
    hybrid: HybridSettings = key(HybridSettings)
    """Hybrid search: how vector search and text search are combined."""


class EmbeddingCache(Settings):
    """Whether embeddings are kept for texts that come again."""

    enabled: bool = key(True)
    """Whether they are."""
    max_entries: int | None = key(None, ge=1)
    """How many at most."""


class MemoryExperiments(Settings):
    """What is not settled yet."""

    session_memory: bool = key(False)
    """Whether past sessions are searched too; `sessions` in `sources` says the same."""


class RecallSettings(Settings):
    """Recall: add search results from memory to a message."""

    enabled: bool = key(True)
    """Whether they do, in direct chats."""
    timeout_ms: int = key(150, ge=1)
    """How long a message waits for it, in milliseconds."""


class MemorySearchSettings(Settings):
    """How an agent's memory is indexed and searched."""

    enabled: bool = key(True)
    """Whether there is an index."""
    sources: list[Literal["memory", "sessions"]] = key(["memory"])
    """What is indexed: memory files, and past sessions."""
    extra_paths: list[str] = key([])
    """More Markdown files and folders."""
    provider: Embedder = key("auto")
    """The embedding provider; `auto` uses `remote` if that has a key or address, else the built-in model."""
    fallback: Embedder = key("none")
    """The embedding provider that is used if `provider` fails."""
    model: str | None = key(None)
    """The embedding model; without it the provider's usual one."""
    remote: RemoteEmbedding = key(RemoteEmbedding)
    """The endpoint that embeds texts."""
    local: LocalEmbedding = key(LocalEmbedding)
    """A model on this machine."""
    store: MemoryStore = key(MemoryStore)
    """Where the index is."""
    chunking: ChunkingSettings = key(ChunkingSettings)
    """Chunking of files for the index."""
    sync: SyncSettings = key(SyncSettings)
    """When the index is brought up to date."""
    query: QuerySettings = key(QuerySettings)
    """What a search gives back."""
    recall: RecallSettings = key(RecallSettings)
    """Recall: add search results from memory to a message."""
    cache: EmbeddingCache = key(EmbeddingCache)
    """Whether embeddings are kept for texts that come again."""
    experimental: MemoryExperiments = key(MemoryExperiments)
    """What is not settled yet."""

    def index_file(self, home: Path, agent: str) -> Path:
        """The database of an agent's index."""
        if self.store.path:
            return Path(self.store.path.replace("{agentId}", agent)).expanduser()
        return home / "memory" / f"{agent}.sqlite"


class ScopeMatch(Settings):
    """Which sessions a rule is for."""

    channel: str | None = key(None)
    """The channel."""
    chat_type: Literal["direct", "group", "channel"] | None = key(None)
    """The kind of chat."""
    key_prefix: str | None = key(None)
    """How the session key starts, without the agent."""
    raw_key_prefix: str | None = key(None)
    """How the whole session key starts."""


class ScopeRule(Settings):
    """Whether some sessions may search memory."""

    action: Literal["allow", "deny"] = key("allow")
    """Whether they may."""
    match: ScopeMatch = key(ScopeMatch)
    """Which sessions."""


class ScopeSettings(Settings):
    """Which sessions may search memory; the first rule that fits decides."""

    default: Literal["allow", "deny"] = key("deny")
    """What holds where no rule fits."""
    rules: list[ScopeRule] = key([ScopeRule(match=ScopeMatch(chat_type="direct"))])
    """The rules."""


class QmdPath(Settings):
    """A folder that QMD indexes too."""

    path: str = key(reload="restart")
    """The folder."""
    name: str | None = key(None, reload="restart")
    """What the collection is called."""
    pattern: str = key("**/*.md", reload="restart")
    """Which of its files."""


class QmdSessions(Settings):
    """Whether QMD indexes past sessions."""

    enabled: bool = key(True, reload="restart")
    """Whether it does."""
    export_dir: str | None = key(None, reload="restart")
    """Where sessions are written as Markdown, in a folder for each agent; without it inside the home."""
    retention_days: int = key(30, reload="restart", ge=0)
    """How long such a file is kept."""


class QmdUpdate(Settings):
    """When QMD brings its index up to date."""

    interval: Duration = key(timedelta(minutes=5), reload="restart")
    """How often words are indexed; 0 is never."""
    debounce_ms: int = key(15_000, reload="restart", ge=0)
    """How long changes are gathered, in milliseconds."""
    on_boot: bool = key(True, reload="restart")
    """Whether it happens when memory is opened."""
    startup: Literal["off", "idle", "immediate"] = key("off", reload="restart")
    """When a running Retinue opens it: when memory is first used, after a while, or at once."""
    startup_delay_ms: int = key(120_000, reload="restart", ge=0)
    """How long `idle` waits, in milliseconds."""
    wait_for_boot_sync: bool = key(False, reload="restart")
    """Whether the first message waits until that is done; else two seconds at most."""
    embed_interval: Duration = key(timedelta(minutes=60), reload="restart")
    """How often texts are embedded, where `searchMode` needs that; 0 is never."""
    command_timeout_ms: int = key(30_000, reload="restart", ge=1)
    """How long a command may take, in milliseconds."""
    update_timeout_ms: int = key(120_000, reload="restart", ge=1)
    """How long indexing may take, in milliseconds."""
    embed_timeout_ms: int = key(120_000, reload="restart", ge=1)
    """How long embedding may take, in milliseconds."""


class QmdLimits(Settings):
    """What a search through QMD gives back."""

    max_results: int = key(6, reload="restart", ge=1)
    """How many hits."""
    max_snippet_chars: int = key(700, reload="restart", ge=1)
    """Characters of each."""
    max_injected_chars: int = key(4_000, reload="restart", ge=1)
    """Characters of all together."""
    timeout_ms: int = key(4_000, reload="restart", ge=1)
    """How long a search may take, in milliseconds."""


class QmdSettings(Settings):
    """The QMD program as memory backend."""

    command: str = key("qmd", reload="restart")
    """The program: a name to be found in PATH, or a full path."""
    search_mode: Literal["search", "vsearch", "query"] = key("search", reload="restart")
    """Which of its searches: by words, which needs no model; by meaning; or both, judged by a model."""
    include_default_memory: bool = key(True, reload="restart")
    """Whether the workspace's memory files are indexed."""
    paths: list[QmdPath] = key([], reload="restart")
    """More folders."""
    sessions: QmdSessions = key(QmdSessions)
    """Whether QMD indexes past sessions."""
    update: QmdUpdate = key(QmdUpdate)
    """When QMD brings its index up to date."""
    limits: QmdLimits = key(QmdLimits)
    """What a search through QMD gives back."""
    scope: ScopeSettings = key(ScopeSettings)
    """Which sessions may search memory."""


class MemorySettings(Settings):
    """Memory that all agents share settings for."""

    backend: Literal["builtin", "qmd"] = key("builtin", reload="restart")
    """The memory backend."""
    citations: Literal["auto", "on", "off"] = key("auto")
    """Whether recalled text names its source; `auto` does in direct chats."""
    qmd: QmdSettings = key(QmdSettings)
    """The QMD program as memory backend."""
