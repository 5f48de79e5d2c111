"""A model API of its own name, served by the adapter for OpenAI's chat format."""

from __future__ import annotations

from retinue.providers.apis.openai_chat import OpenAIChat
from retinue.providers.base import Endpoint


def make_provider(endpoint: Endpoint) -> OpenAIChat:
    return OpenAIChat(endpoint)
