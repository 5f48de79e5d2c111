"""The `session` section."""

from __future__ import annotations

from datetime import timedelta

import pytest

from retinue.sessions.settings import SessionSettings
from retinue.structs.decode import DecodeError, decode


def test_the_defaults_are_those_of_the_original() -> None:
    settings = SessionSettings()
    assert (settings.reset.mode, settings.reset.at_hour, settings.reset.idle_minutes) == ("daily", 4, 0)
    assert settings.reset_triggers == ("/new", "/reset")
    assert settings.dm_scope == "main"
    assert settings.maintenance.prune_after == timedelta(days=30)
    assert settings.durability == "process"


def test_a_configuration_of_the_original_is_read() -> None:
    settings = decode(
        SessionSettings,
        {
            "scope": "per-sender",
            "dmScope": "per-channel-peer",
            "identityLinks": {"ada": ["telegram:1", "discord:2"]},
            "reset": {"mode": "idle", "idleMinutes": 60},
            "resetByType": {"dm": {"mode": "idle", "idleMinutes": 240}, "group": {"mode": "daily", "atHour": 5}},
            "resetByChannel": {"discord": {"mode": "idle", "idleMinutes": 10080}},
            "maintenance": {"mode": "warn", "pruneAfter": "7d", "maxDiskBytes": "1gb", "preserveRecent": "off"},
            "sendPolicy": {"default": "allow", "rules": [{"action": "deny", "match": {"chatType": "group"}}]},
        },
    )
    assert settings.identity_links["ada"] == ("telegram:1", "discord:2")
    assert settings.reset_by_channel["discord"].idle_minutes == 10080
    assert settings.reset_by_type.dm is not None
    assert settings.send_policy.rules[0].match.chat_type == "group"


@pytest.mark.parametrize(
    "section",
    [{"reset": {"atHour": 24}}, {"dmScope": "everything"}, {"reset": {"idleMinutes": -1}}, {"durability": "none"}],
)
def test_what_makes_no_sense_is_refused(section: dict[str, object]) -> None:
    with pytest.raises(DecodeError):
        decode(SessionSettings, section)
