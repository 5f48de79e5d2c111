"""Service files for systemd and launchd."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from retinue.storage.home_paths import HomePaths


def service_name(home: HomePaths) -> str:
    return f"retinue-gateway-{home.profile}" if home.profile else "retinue-gateway"


def gateway_command(home: HomePaths) -> list[str]:
    """Return the command that runs the gateway of a home with this Python."""
    return [sys.executable, "-m", "retinue", "gateway", "run", "--home", str(home.path)]


def service_file(home: HomePaths, system: str, user_home: Path) -> tuple[Path, str, str]:
    """Return the path and content of the service file, and the command that enables it."""
    name = service_name(home)
    if system == "darwin":
        label = f"retinue.{name}"
        path = user_home / "Library" / "LaunchAgents" / f"{label}.plist"
        return path, launchd_plist(home, label), f"launchctl load -w {path}"
    path = user_home / ".config" / "systemd" / "user" / f"{name}.service"
    return path, systemd_unit(home), f"systemctl --user daemon-reload && systemctl --user enable --now {name}"


def systemd_unit(home: HomePaths) -> str:
    """Render a user unit. The gateway drains on SIGTERM, so the stop timeout is longer than the drain."""
    command = " ".join(_quote_for_systemd(word) for word in gateway_command(home))
    return f"""\
[Unit]
Description=Retinue gateway ({home.path})
After=network-online.target

[Service]
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
TimeoutStopSec=40
UMask=0077

[Install]
WantedBy=default.target
"""


def launchd_plist(home: HomePaths, label: str) -> str:
    words = "".join(f"\n    <string>{escape(word)}</string>" for word in gateway_command(home))
    return f"""\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>{escape(label)}</string>
  <key>ProgramArguments</key>
  <array>{words}
  </array>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>ExitTimeOut</key><integer>40</integer>
  <key>Umask</key><integer>63</integer>
</dict>
</plist>
"""


def _quote_for_systemd(word: str) -> str:
    quoted = shlex.quote(word).replace("%", "%%")
    return quoted.replace("$", "$$")
