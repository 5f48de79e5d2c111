"""Model names that mean agents: `retinue`, `retinue/<agent>` and `retinue:<agent>`."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.config.schema import Config
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.gateway.errors import BadField
from retinue.wire.protocol import ErrorCode

PRODUCT = "retinue"
DEFAULT = "default"


def model_names(config: Config) -> Iterator[str]:
    """All names in the list of models: the short name of the default agent, then one name for each agent."""
    yield PRODUCT
    yield from (f"{PRODUCT}/{agent}" for agent in config.agents.ids)


def find_agent(config: Config, model: str) -> AgentId:
    """The agent that a model name means; raises `BadField` if there is none."""
    for mark in ("/", ":"):
        product, found, agent = model.strip().lower().partition(mark)
        if product == PRODUCT and (not found or agent == DEFAULT):
            return config.agents.default_id
        if product == PRODUCT:
            try:
                return config.agents.resolve(agent).id
            except UsageError:
                break
    known = ", ".join(model_names(config))
    raise BadField(
        "model",
        f"There is no model '{model[:100]}'. The models are agents: {known}.",
        code=ErrorCode.NOT_FOUND,
        kind="model_not_found",
    )
