"""Names of emoji in Slack, which has names where other services have characters."""

from __future__ import annotations

import re

from retinue.channels.channel import DeliveryFailed

_NAMES = {
    "👀": "eyes",
    "👍": "thumbsup",
    "👎": "thumbsdown",
    "❤": "heart",
    "🔥": "fire",
    "🎉": "tada",
    "✅": "white_check_mark",
    "❌": "x",
    "⏳": "hourglass_flowing_sand",
    "🤔": "thinking_face",
    "😀": "grinning",
    "😂": "joy",
    "😢": "cry",
    "🙏": "pray",
    "👏": "clap",
    "🚀": "rocket",
    "💯": "100",
    "⚠": "warning",
    "✔": "heavy_check_mark",
    "⭐": "star",
    "🙂": "slightly_smiling_face",
    "😄": "smile",
    "😮": "open_mouth",
    "👋": "wave",
    "👌": "ok_hand",
    "💡": "bulb",
    "🤖": "robot_face",
    "📝": "memo",
    "🐛": "bug",
    "🫡": "saluting_face",
}


def emoji_name(emoji: str) -> str:
    """Return Slack's name of an emoji, given as a character or a name; raise `DeliveryFailed` if it has none."""
    text = emoji.strip().strip(":").replace("\ufe0f", "")
    found = _NAMES.get(text, text)
    if not re.fullmatch(r"[A-Za-z0-9_+'-]+", found):
        raise DeliveryFailed(f"Slack has no name for the reaction '{emoji}'.", final=True)
    return found
