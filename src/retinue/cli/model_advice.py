"""What a person can do about a failed model call."""

from __future__ import annotations

import re

from retinue.core.model import Failure, ModelRef

_UNRESOLVED = re.compile(
    r"name (?:or service|resolution)|nodename|getaddrinfo|(?:could not|cannot) be (?:found|resolved)|no address",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"connection refused|all connection attempts failed", re.IGNORECASE)
_CHOOSE_IN_CHAT = "choose another model with /model"
_CHOOSE = "choose another model with `retinue models set`"


def advise(failure: Failure | None, error: str, model: str, *, in_chat: bool) -> str:
    """Return what to do about a failure; empty if there is nothing to say."""
    ref = ModelRef.parse(model or _first_model(error))
    provider = ref.provider if ref else "PROVIDER"
    choose = _CHOOSE_IN_CHAT if in_chat else _CHOOSE
    match failure:
        case Failure.AUTH:
            return f"Store a valid key with `retinue models auth add {provider}`, or {choose}."
        case Failure.BILLING:
            return f"Add credit to the account at {provider}, or {choose}."
        case Failure.NOT_FOUND:
            where = "/models" if in_chat else "`retinue models list`"
            return f"{where} lists the models that can be used; {choose}."
        case Failure.RATE_LIMIT:
            return (
                f"Wait for the limit to end, or {choose}. A model in agents.defaults.model.fallbacks is used by itself."
            )
        case Failure.OVERLOADED | Failure.SERVER | Failure.TIMEOUT | Failure.EMPTY:
            return f"The provider has a problem. Try again later, or {choose}."
        case Failure.CONNECTION if _UNRESOLVED.search(error):
            return (
                "The name of the server was not found: this machine is offline, or the address is misspelled. Check "
                f"the network, and models.providers.{provider}.baseUrl if it is set."
            )
        case Failure.CONNECTION if _REFUSED.search(error):
            return f"No server answers at this address. Start it, or {choose}."
        case Failure.CONNECTION:
            return f"Check the network connection, or {choose}."
    return ""


def _first_model(error: str) -> str:
    """Return the model that an error message names first, which is one word with a slash."""
    found = re.search(r"(?:^|[\s-])([\w.-]+/[^\s:(]+)", error)
    return found[1] if found else ""
