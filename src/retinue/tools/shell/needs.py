"""What a sandboxed command needs beyond its sandbox: a host, a path, a service, a device, or no sandbox at all.

Needs are estimated from the command to ask a person before it fails. The sandbox does not depend on the estimate: a
need that is not found here is refused there, and one that is found wrongly costs a question.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from enum import StrEnum
from urllib.parse import urlsplit

from msgspec import Struct

from retinue.core.errors import UsageError
from retinue.tools.shell.allowlist import Argv
from retinue.tools.shell.argument_spec import flags
from retinue.tools.shell.wrappers import innermost, program_name

MAX_SCANNED = 20_000
ANY_HOST = "*"


class NeedKind(StrEnum):
    """Kinds of needs."""

    NETWORK = "network"
    PATH = "path"
    SERVICE = "service"
    DEVICE = "device"
    UNSANDBOXED = "unsandboxed"


class Need(Struct, frozen=True):
    """One need; `name` is the host, path, service or device."""

    kind: NeedKind
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Need:
        """Parse a need such as `network:example.org`; raise `UsageError` if it is none."""
        kind, colon, name = text.strip().partition(":")
        valid = {NeedKind.UNSANDBOXED.value: not name} | {
            NeedKind.NETWORK.value: _HOST.fullmatch(name) is not None or name == ANY_HOST,
            NeedKind.PATH.value: name.startswith("/"),
            NeedKind.SERVICE.value: bool(name),
            NeedKind.DEVICE.value: name.startswith("/dev/"),
        }
        if not valid.get(kind) or "\0" in name or bool(colon) is not (kind != NeedKind.UNSANDBOXED):
            raise UsageError(
                f"'{text}' is not a need. Use network:HOST, path:/PATH, service:NAME, device:/dev/NAME or unsandboxed."
            )
        return cls(NeedKind(kind), name)

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}" if self.name else self.kind.value

    @property
    def leaves(self) -> bool:
        """Whether it can only be met outside the sandbox."""
        return self.kind not in (NeedKind.NETWORK, NeedKind.PATH)

    def describe(self) -> str:
        """Return what is needed, as part of a sentence."""
        match self.kind:
            case NeedKind.NETWORK:
                return f"network access to {'any public host' if self.name == ANY_HOST else self.name}"
            case NeedKind.PATH:
                return f"the path {self.name}"
            case NeedKind.SERVICE:
                return f"the service {self.name}"
            case NeedKind.DEVICE:
                return f"the device {self.name}"
            case _:
                return "to run outside the sandbox"


UNSANDBOXED = Need(NeedKind.UNSANDBOXED)
_HOST = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?"
)
_URL = re.compile(r"\b(?:https?|ftps?|wss?|ssh|git)://[^\s'\"`|;&<>(){}\\]+", re.IGNORECASE)
_SCP_PATH = re.compile(r"(?:[\w.-]+@)?([A-Za-z0-9][\w.-]*):(?!//)[^\s]*")
_LOCAL = re.compile(r"localhost|.*\.localhost|127\.[0-9.]+|0\.0\.0\.0|\[?::1\]?")
_INFORMS = flags("--version --help -V -h help version")

_LOADERS = flags("curl wget http https xh xhs aria2c lynx w3m links elinks yt-dlp youtube-dl httpie")
_REMOTE = flags("ssh scp sftp mosh rsh telnet ftp lftp nc ncat netcat socat nmap ping ping6 traceroute tracepath mtr")
_REMOTE |= flags("dig nslookup host whois ssh-copy-id sshfs autossh rclone swaks sendmail mail mailx mutt smbclient")
_SERVICES = flags(
    "docker docker-compose podman nerdctl kubectl helm minikube kind systemctl journalctl loginctl busctl"
)
_SERVICES |= flags(
    "dbus-send gdbus nmcli bluetoothctl virsh psql pg_dump pg_restore createdb dropdb mysql mysqldump mariadb"
)
_SERVICES |= flags("redis-cli mongosh mongo crontab at atq batch xdg-open notify-send pactl wpctl tmux screen service")
_SERVICES |= flags("gh glab aws gcloud az heroku doctl flyctl fly terraform ansible ansible-playbook vercel netlify")
_ADMIN = flags(
    "sudo doas su pkexec run0 mount umount fdisk parted mkswap swapon modprobe insmod rmmod iptables nft ufw"
)
_ADMIN |= flags("useradd usermod userdel groupadd passwd chpasswd visudo reboot shutdown poweroff halt snap flatpak")
_ADMIN |= flags("sysctl systemd-run losetup cryptsetup lvcreate hwclock timedatectl hostnamectl update-grub chroot")
_INSTALLERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("pip", "pipx", "uv"), flags("install download add sync upgrade wheel lock pip tool")),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun"), flags("install i ci add update upgrade publish audit outdated view")
    ),
    **dict.fromkeys(("poetry", "pdm", "hatch"), flags("install add update lock publish")),
    **dict.fromkeys(("gem", "bundle", "bundler"), flags("install update outdated")),
    **dict.fromkeys(("conda", "mamba", "micromamba"), flags("install create update search")),
    "cargo": flags("install add update fetch publish search"),
    "go": flags("get install"),
    "composer": flags("install update require"),
    "rustup": flags("update install toolchain target"),
    "nvm": flags("install"),
    "pyenv": flags("install"),
    "ollama": flags("pull push"),
}
_SYSTEM_INSTALLERS = flags("apt apt-get aptitude dnf yum apk pacman zypper brew port emerge dpkg rpm")
_SYSTEM_CHANGES = flags(
    "install remove purge update upgrade dist-upgrade full-upgrade autoremove add del -S -Syu -Sy -R -U"
)
_PACKAGE_CHANGES = flags("-i -r -P -a -U -F -e --install --remove --purge --configure --unpack --upgrade --erase")
"""Options with which dpkg and rpm change the system; the others read."""
_LOCAL_USES: dict[str, frozenset[str]] = {
    "terraform": flags("fmt validate output show"),
    "mount": flags("-l"),
    "swapon": flags("-s --show --summary"),
}
"""First words after a program with which it needs nothing that it needs otherwise."""
_SSH_VALUES = flags("-b -B -c -D -e -E -F -i -I -J -l -L -m -o -O -p -P -Q -R -S -w -W -X")
_VALUE_OPTIONS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("ssh", "autossh", "sftp"), _SSH_VALUES - flags("-X")),
    "scp": _SSH_VALUES,
    "curl": flags(
        "-A -b -c -C -d -D -e -E -F -H -m -o -Q -r -T -u -U -w -X -y -Y -z --data --data-raw --data-binary --json"
        " --data-urlencode --header --output --request --user --user-agent --referer --cookie --cookie-jar --form"
        " --max-time --connect-timeout --retry --cacert --cert --key --write-out --upload-file --range --limit-rate"
    ),
    "wget": flags(
        "-O -o -a -P -t -T -w -Q -U -l -A -R -D -e --output-document --output-file --append-output --user-agent"
        " --directory-prefix --load-cookies --save-cookies --header --post-data --post-file --tries --timeout --wait"
        " --limit-rate --quota --user --password --level --accept --reject --domains --execute"
    ),
}
"""Options whose value is the next word, so that it is not taken for a host; not those that read addresses."""
_SOCAT_HOST = re.compile(r"(?:tcp|udp|openssl|ssl|sctp)[46]?(?:-connect|-sendto)?:(\[[^]]+\]|[^:,]+):.*", re.IGNORECASE)
_GIT_REMOTE = flags("clone fetch pull push ls-remote")
_DEVICE = re.compile(
    r"(?:of=|if=)?(/dev/(?:sd|hd|vd|nvme|mmcblk|tty[A-Z]|video|snd|dri|input|bus|usb|loop|mapper|kvm|fuse)[\w/-]*)"
)
_WORD_BREAK = re.compile(r"\|\||&&|[;|&\n(){}`]|\$\(|<\(|>\(|\bdo\b|\bthen\b|\belse\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")
_REDIRECTED = re.compile(r"^[0-9&]*[<>]+")


def split_roughly(text: str) -> tuple[Argv, ...]:
    """Split a text that only a shell can read into words at every operator; nested quotes may be misread."""
    found: list[Argv] = []
    for part in _WORD_BREAK.split(_hide_quoted(text[:MAX_SCANNED])):
        try:
            words = shlex.split(part.replace(_HIDDEN, " "), comments=False)
        except ValueError:
            words = part.split()
        while words and _ASSIGNMENT.fullmatch(words[0]):
            words = words[1:]
        if words:
            found.append(tuple(words))
    return tuple(found)


_HIDDEN = "\x00"
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\$`]|\\.)*\"")


def _hide_quoted(text: str) -> str:
    """Replace operators inside plain quotes, so that they do not separate commands."""
    return _QUOTED.sub(lambda found: _WORD_BREAK.sub(_HIDDEN, found.group()), text)


def estimate_needs(commands: Iterable[Argv], text: str) -> tuple[Need, ...]:
    """Return what these commands seem to need, except paths, which depend on what the sandbox shows."""
    needs: list[Need] = []
    for argv in commands:
        inner = _inside_wrappers(innermost(argv))
        if inner and not _only_informs(inner):
            needs += _needs_of(inner, text)
    return tuple(dict.fromkeys(needs))


def _only_informs(argv: Argv) -> bool:
    """Return whether a command only shows a help text or a version: `docker --version`, `git push --help`."""
    if len(argv) == 2:
        return argv[1] in _INFORMS
    return len(argv) == 3 and argv[2] == "--help" and program_name(argv) not in _REMOTE | _ADMIN | _LOADERS


def _works_here(name: str, words: Argv) -> bool:
    """Return whether a program that usually needs more only reads or changes what is in the sandbox."""
    return words[0] in _LOCAL_USES.get(name, ()) if words else name == "mount"


def _inside_wrappers(argv: Argv) -> Argv:
    """Skip words before a command that `innermost` does not understand, such as `xargs -n 1`."""
    if argv and program_name(argv) in ("xargs", "time", "command", "exec", "nohup", "env", "watch"):
        rest = argv[1:]
        while rest and (rest[0].startswith("-") or _ASSIGNMENT.fullmatch(rest[0]) or rest[0].isdecimal()):
            rest = rest[1:]
        return rest or argv
    return argv


def _needs_of(argv: Argv, text: str) -> Iterator[Need]:
    name, words = program_name(argv), argv[1:]
    operands = _operands_of(name, words)
    for word in words:
        device = _DEVICE.fullmatch(word)
        if device is not None:
            yield Need(NeedKind.DEVICE, device.group(1))
    if _works_here(name, words):
        return
    if name in _ADMIN:
        yield UNSANDBOXED
    elif name in _SERVICES:
        yield Need(NeedKind.SERVICE, name)
    elif name in _LOADERS:
        yield from _hosts_of_loader(name, words, operands)
    elif name in _REMOTE:
        yield from _hosts_of_remote(name, operands)
    elif name == "rsync":
        yield from _hosts_of_copy(operands)
    elif name == "git":
        yield from _needs_of_git(operands, text)
    elif name in _SYSTEM_INSTALLERS and not _system_changes(name).isdisjoint(words):
        yield from (Need(NeedKind.NETWORK, ANY_HOST), UNSANDBOXED)
    else:
        yield from _needs_of_installer(name, words, operands)


def _system_changes(name: str) -> frozenset[str]:
    return _PACKAGE_CHANGES if name in ("dpkg", "rpm") else _SYSTEM_CHANGES


def _operands_of(name: str, words: Argv) -> list[str]:
    """Return the words that are neither options nor values of options that are known to have one."""
    with_value = _VALUE_OPTIONS.get(name, frozenset())
    previous = ("", *words)
    return [word for word, before in zip(words, previous, strict=False) if word[:1] != "-" and before not in with_value]


def _needs_of_installer(name: str, words: Argv, operands: list[str]) -> Iterator[Need]:
    if name.startswith("python") and words[:2] == ("-m", "pip"):
        name, operands = "pip", list(words[2:])
    name = "pip" if re.fullmatch(r"pip[0-9.]+", name) else name
    verbs = _INSTALLERS.get(name)
    if verbs is None or not operands or operands[0] not in verbs or _installs_locally(name, operands[1:], words):
        bare = name in ("yarn", "bundle") and not words
        if not bare:
            return
    yield Need(NeedKind.NETWORK, ANY_HOST)


def _installs_locally(program: str, operands: list[str], words: Argv) -> bool:
    if "--no-index" in words or "--offline" in words:
        return True
    is_alone = program == "go" or "--no-deps" in words  # what a Go module needs is loaded by `go mod download`
    return is_alone and bool(operands) and all(name.startswith((".", "/")) for name in operands)


def _hosts_of_loader(name: str, words: Argv, operands: list[str]) -> Iterator[Need]:
    if name == "wget" and not {"-i", "--input-file"}.isdisjoint(words):
        yield Need(NeedKind.NETWORK, ANY_HOST)  # the addresses are in a file
        return
    found = [url for word in words for url in _URL.findall(word)]
    if operands and all(word.startswith("file:") for word in operands):
        return
    # without a scheme curl and wget read a word as an address: `curl example.org/x`
    bare = [
        word
        for word in operands
        if "://" not in word and re.match(r"[\w-]+(\.[\w-]+)+(:[0-9]+)?(/|$)|localhost\b", word)
    ]
    hosts = [_host_of(url) for url in (*found, *(f"http://{word}" for word in bare[:1] if not found))]
    if not hosts and not operands:
        return
    yield from (network_need(host) for host in hosts or [ANY_HOST])


def _hosts_of_remote(name: str, operands: list[str]) -> Iterator[Need]:
    if name == "scp" and operands and not any(":" in word for word in operands):
        return  # a copy on this machine
    for word in operands:
        host = (_SOCAT_HOST if name == "socat" else _SCP_PATH).fullmatch(word)
        plain = host.group(1) if host else word.rpartition("@")[2]
        if name == "socat" and host is None:
            continue  # such as an address to listen on, or a file
        if _HOST.fullmatch(plain) and not plain.isdecimal() and (host or name not in ("scp", "sftp")):
            yield network_need(plain)
            break
    yield UNSANDBOXED


def _hosts_of_copy(operands: list[str]) -> Iterator[Need]:
    for word in operands:
        host = _SCP_PATH.fullmatch(word)
        if host is not None or word.startswith("rsync://"):
            yield from (network_need(host.group(1) if host else _host_of(word)), UNSANDBOXED)


def _needs_of_git(operands: list[str], text: str) -> Iterator[Need]:
    verb = operands[:2]
    remote = verb[:1] and (
        verb[0] in _GIT_REMOTE
        or verb in (["submodule", "update"], ["submodule", "add"], ["remote", "update"], ["lfs", "pull"])
    )
    if not remote:
        return
    rest = operands[1:]
    urls = [url for word in rest for url in _URL.findall(word)]
    if any(word.startswith((".", "/", "file:")) for word in rest) and not urls:
        return  # another repository on this machine
    if urls and not urls[0].startswith(("ssh", "git:")) and verb[0] != "push":
        yield network_need(_host_of(urls[0]))
        return
    copied = next((found for word in rest if (found := _SCP_PATH.fullmatch(word))), None)
    # a remote by its name: its address and the person's credentials are in the settings of git
    yield from (Need(NeedKind.NETWORK, copied.group(1) if copied else ANY_HOST), UNSANDBOXED)


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or ANY_HOST, parts.port
    except ValueError:
        return ANY_HOST
    return f"{host}:{port}" if port not in (None, 80, 443) else host


def network_need(host: str) -> Need:
    """Return the need for a host; this machine is reached only outside the sandbox."""
    if _LOCAL.fullmatch(host.rpartition(":")[0] if re.search(r"[^:]:[0-9]+$", host) else host):
        return Need(NeedKind.SERVICE, host)
    return Need(NeedKind.NETWORK, host if _HOST.fullmatch(host) else ANY_HOST)


def find_paths(commands: Iterable[Argv]) -> Iterator[str]:
    """Yield the words of commands that are paths from the root or from the home folder."""
    for argv in commands:
        for word in argv:
            for text in (word, word.partition("=")[2]) if "=" in word else (word,):
                path = _REDIRECTED.sub("", text).removeprefix("@").removeprefix("file://")
                if path.startswith(("/", "~/", "$HOME/", "${HOME}/")) and not re.search(r"[*?\[\s]", path):
                    yield path
