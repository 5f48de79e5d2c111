"""Starting llama.cpp in this process, the same way for answering and for embedding."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.errors import ModelError

if TYPE_CHECKING:
    from types import ModuleType


def load_llama() -> ModuleType:
    """The library; raises `ModelError` where its extra is not installed."""
    try:
        import xllamacpp
    except ImportError:
        raise ModelError("Local models need the extra 'local'. Install it: pip install 'retinue[local]'") from None
    module: ModuleType = xllamacpp
    return module


def quiet_parameters(llama: ModuleType, path: Path) -> Any:
    """The parameters of an engine that works for one caller and shows nothing to anybody."""
    parameters = llama.CommonParams()
    parameters.model.path = str(path)
    parameters.n_parallel = 1
    parameters.verbosity = -1
    parameters.warmup = False
    parameters.ui = False
    parameters.endpoint_slots = False
    # The engine always listens on a loopback port. Nobody else on this machine may use it, so it gets a key that
    # nobody knows; we call it in process.
    parameters.api_keys = [secrets.token_urlsafe(32)]
    return parameters


def start_engine(llama: ModuleType, parameters: Any, path: Path) -> Any:
    """An engine with its model loaded; raises `ModelError` where that cannot be done."""
    try:
        return llama.Server(parameters)
    except RuntimeError as error:
        raise ModelError(f"'{path.name}' cannot be loaded: {error}") from error
