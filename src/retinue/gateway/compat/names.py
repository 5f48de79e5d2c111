"""Agents by the names that models have in requests: `retinue`, `retinue/<agent>`, `retinue:<agent>`."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.config.schema import Config
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.gateway.compat.errors import BadField
from retinue.wire.protocol import ErrorCode

PRODUCT = "retinue"
DEFAULT = "default"


def model_names(config: Config) -> Iterator[str]:
    """Every name that the list of models has: the default agent's short one, then one for each agent."""
    yield PRODUCT
    yield from (f"{PRODUCT}/{agent}" for agent in config.agents.ids)


def find_agent(config: Config, model: str) -> AgentId:
    """The agent that a model's name means; raises `BadField` where it means none."""
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
        f"There is no model '{model[:100]}'. Agents are the models here: {known}.",
        code=ErrorCode.NOT_FOUND,
        kind="model_not_found",
    )
