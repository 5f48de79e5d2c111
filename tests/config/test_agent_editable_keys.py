"""What an agent may change of the configuration, and everything it may not."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.config.edit import AGENT_EDITABLE_KEYS, check_agent_change
from retinue.config.keypath import parse_path
from retinue.config.keys import every_key, require_key
from retinue.config.schema import Config
from retinue.core.errors import UsageError


def test_everything_on_the_list_exists() -> None:
    for key in AGENT_EDITABLE_KEYS:
        require_key(Config, parse_path(key))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("agents.defaults.model", "test/other"),
        ("agents.defaults.model.fallbacks", ["a/b"]),
        ("agents.list[id=work].identity", {"name": "Ada"}),
        ("agents.list[0].groupChat.requireMention", False),
        ("messages.ackReaction", "👀"),
        ("session.reset", {"mode": "idle", "idleMinutes": 5}),
    ],
)
def test_harmless_keys_may_be_changed(key: str, value: Any) -> None:
    check_agent_change(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tools.exec.security", "full"),
        ("tools.exec", {"security": "full"}),
        ('tools["exec"].security', "full"),
        ("tools['exec']['ask']", "off"),
        ("tools", {"exec": {"security": "full"}}),
        ("tools.allow", ["*"]),
        ("tools.elevated.enabled", True),
        ("tools.sandbox.tools.allow", ["*"]),
        ("agents", {"defaults": {"sandbox": {"mode": "off"}}}),
        ("agents.defaults", {"sandbox": {"mode": "off"}}),
        ("agents.defaults.sandbox.mode", "off"),
        ("agents.defaults.elevatedDefault", "full"),
        ("agents.list", [{"id": "main", "tools": {"allow": ["*"]}}]),
        ("agents.list[0]", {"id": "main", "tools": {"profile": "full"}}),
        ("agents.list[id=main].tools.exec.allowlist", ["*"]),
        ("agents.list[0].sandbox", {"mode": "off"}),
        ("models.providers.x.apiKey", "k"),
        ("auth", {}),
        ("plugins.enabled", True),
        ("hooks.enabled", True),
        ("gateway.auth.mode", "none"),
        ("gateway", {"auth": {"mode": "none"}}),
        ("gateway.bind", "lan"),
        ("commands.ownerAllowFrom", ["http:eve"]),
        ("channels.http.allowFrom", ["*"]),
        ("session.sendPolicy.default", "allow"),
        ("session.identityLinks", {"ada": ["http:eve"]}),
        ("bindings", []),
        ("env.vars", {}),
        ("skills", {}),
        ("approvals", {}),
    ],
)
def test_rights_secrets_plugins_hooks_and_doors_stay_the_owners(key: str, value: Any) -> None:
    with pytest.raises(UsageError):
        check_agent_change(key, value)


RISKY_SECTIONS = (
    *("tools", "auth", "plugins", "hooks", "gateway", "channels", "models.", "bindings", "env", "skills", "commands"),
)
RISKY_NAMES = (
    "exec",
    "sandbox",
    "elevated",
    "allow",
    "deny",
    "token",
    "secret",
    "apikey",
    "password",
    "baseurl",
    "url",
)


def test_no_key_that_sounds_like_a_right_a_secret_or_an_address_may_be_changed() -> None:
    slipped_in = []
    for key in every_key(Config):
        path = key.path.replace("[]", "[0]").replace(".*", '["x"]')
        name = path.rsplit(".", 1)[-1].lower()
        if path.startswith(RISKY_SECTIONS) or name.startswith(RISKY_NAMES):
            try:
                check_agent_change(path, "x")
                slipped_in.append(path)
            except UsageError:
                pass
    assert slipped_in == []


@pytest.mark.parametrize("value", ["${OPENAI_API_KEY}", {"a": ["x ${HOME}"]}, {"$include": "/etc/passwd"}])
def test_a_value_may_not_refer_to_the_environment_or_to_files(value: Any) -> None:
    with pytest.raises(UsageError):
        check_agent_change("messages.responsePrefix", value)
