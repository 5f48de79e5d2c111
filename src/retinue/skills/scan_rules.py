"""The rules of the scan of skills, besides those for prompt injection."""

from __future__ import annotations

import re

from msgspec import Struct

from retinue.security.injection_rules import RiskLevel


class SkillRule(Struct, frozen=True):
    """A pattern of an attack, without regard to case."""

    name: str
    severity: RiskLevel
    pattern: str


class RuleCombination(Struct, frozen=True):
    """An attack that consists of several parts: one rule of each group matches somewhere in a file."""

    name: str
    rules: tuple[tuple[str, ...], ...]


IN_CODE = frozenset(
    {
        "override",
        "override-foreign",
        "disregard",
        "forget",
        "concealment",
        "persistence",
        "disable-safety",
        "download-and-run",
        "decode-and-run",
        "send-data",
        "ask-secrets",
        "encoded-payload",
        "hidden-tag-characters",
        "hidden-variation-selectors",
        "bidi-override",
        "zero-width",
        "spaced-override",
        "reversed-override",
        "rot13-override",
    }
)
"""The rules for prompt injection that are applied to scripts; the others match code that calls models."""

_INSTALLER = r"\.(?:exe|dmg|pkg|msi|scr|bat|cmd|ps1|appimage|deb|rpm|jar|zip|7z|rar|tar\.gz|tgz)\b"
_HOSTS = (
    r"(?:pastebin\.com|hastebin|rentry\.(?:co|org)|glot\.io|paste\.ee|dpaste|ghostbin|termbin\.com|controlc\.com|"
    r"transfer\.sh|file\.io|gofile\.io|anonfiles|mediafire\.com|mega\.nz|bit\.ly|tinyurl\.com|is\.gd|cutt\.ly|t\.ly|"
    r"raw\.githack|cdn\.discordapp\.com|files\.catbox\.moe|0x0\.st|webhook\.site|socifiapp|"
    r"(?!127\.|10\.|192\.168\.|0\.0\.0\.0|172\.(?:1[6-9]|2\d|3"
    r"[01])\.)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?::\d{2,5})?/)"
)
_SINKS = (
    r"(?:webhook\.site|requestbin|pipedream\.net|ngrok(?:-free)?\.(?:io|app|dev)|burpcollaborator|interact\.sh|"
    r"oast\.(?:fun|pro|live|site|me|online)|discord(?:app)?\.com/api/webhooks|api\.telegram\.org/bot|beeceptor\.com|"
    r"requestcatcher|hookb\.in|serveo\.net|trycloudflare\.com|dnslog\.|ceye\.io|canarytokens)"
)
_PRIVATE_FILES = (
    r"(?:\.ssh/(?:id_|\*|config\b)|id_(?:rsa|ed25519|ecdsa)\b(?!\.pub)|\.aws/credentials|\.config/gcloud"
    r"|\.kube/config|"
    r"\.docker/config\.json|\.netrc\b|\.git-credentials|\.npmrc\b|\.pypirc\b|\.gnupg|/etc/shadow|\.pgpass|"
    r"login data\b|cookies\.sqlite|logins\.json|key[34]\.db|local state\b|keychain(?:-db|s/)|find-generic-password|"
    r"dump-keychain|wallet\.dat|\.(?:electrum|exodus|metamask|solana|bitcoin|ethereum)/|keystore/utc|"
    r"auth-profiles\.json|(?:openclaw|clawdbot|retinue)\.json|\.(?:openclaw|clawdbot|retinue)/(?:credentials"
    r"|\.env|agents)|"
    r"~/\.env\b|\bhome\(?\)?[^\n]{0,20}\.env\b)"
)
_PRECIOUS = (
    r"(?:seed phrases?|recovery phrases?|mnemonic(?: phrase)?|private keys?|master passwords?|wallet keys?|"
    r"(?:2fa|two-factor|one-time|verification|otp) codes?|credit card (?:number|details)|cvv|social security|"
    r"(?:account|bank|email|login|sudo|system|admin(?:istrator)?) passwords?|session cookies?)"
)

TEXT_RULES = (
    SkillRule(
        "prerequisite-download",
        RiskLevel.HIGH,
        r"\b(?:prerequisites?|requirements?|required|before (?:you (?:begin|start|use)|using|first use|anything)|"
        r"first|must|needs?|mandatory|important|won't work|will not work|step 1|setup"
        r"|set up)\b[^\n]{0,200}(?:\n[^\n]{0,200}){0,4}?"
        r"\b(?:download|install|grab|get|fetch|run|execute|extract|unpack)\b[^\n]{0,160}"
        rf"(?:https?://[^\s)\"'>]{{3,200}}{_INSTALLER}|https?://{_HOSTS})",
    ),
    SkillRule(
        "password-archive",
        RiskLevel.HIGH,
        r"\b(?:zip|archive|rar|7z|file|extract|unzip|unpack)[^\n]{0,80}\b(?:pass(?:word|code|phrase)|pwd"
        r"|pw)\b[\s:`'\"=*]{1,8}"
        r"(?!protected|is\b|manager|that|for|which|the\b|or\b|and\b|from\b|to\b|in\b)[`'\"]?[\w!@#$%-]{3,30}"
        r"|\b(?:download|extract|unpack|unzip|open|get|grab)\b[^\n.]{0,40}\bpass(?:word"
        r"|code)[- ]protected (?:zip|archive|rar|7z|file)"
        r"|\b(?:unzip|7z x|unrar x)\b[^\n]{0,40} -[pP] ?[\w!@#$%'\"-]{2,40}",
    ),
    SkillRule(
        "paste-in-terminal",
        RiskLevel.HIGH,
        r"\b(?:copy|paste)\b[^\n]{0,80}\b(?:in|into|to)\b[^\n]{0,30}\b(?:terminal|command prompt|powershell"
        r"|console|shell)\b"
        rf"[^\n]{{0,160}}(?:\n[^\n]{{0,200}}){{0,4}}?(?:https?://{_HOSTS}|base64|\|\s{{0,3}}(?:ba|z)?sh\b"
        rf"|\bcurl\b[^\n]{{0,200}}\|)",
    ),
    SkillRule(
        "run-from-link",
        RiskLevel.HIGH,
        rf"https?://{_HOSTS}[^\n]{{0,160}}\b(?:terminal|installation script|installer|run (?:it|this|the)"
        rf"|execute|paste)\b|"
        rf"\b(?:run|execute|install|copy|use|follow)\b[^\n]{{0,80}}\b(?:script|command|installer|code"
        rf"|instructions?|snippet)\b[^\n]{{0,80}}https?://{_HOSTS}"
        rf"|\b(?:fetch|load|read|open|visit|get|check)\b[^\n]{{0,60}}https?://[^\s]{{3,200}}"
        rf"[^\n]{{0,60}}\b(?:and|then)\b[^\n]{{0,20}}"
        r"\b(?:follow|obey|execute|run|do (?:exactly )?(?:what|as)|perform|apply)\b[^\n]{0,40}\b(?:it|them"
        r"|instructions?|steps|says?|commands?|returned|response|there)\b",
    ),
    SkillRule(
        "requests-secret",
        RiskLevel.HIGH,
        r"(?<!never )(?<!not )(?<!n't )\b(?:ask|prompt|request|require|get|collect|obtain|have|tell"
        r"|instruct)\b[^\n.]{0,50}\b(?:user|owner|human|person|them|him|her)\b"
        rf"[^\n.]{{0,60}}\b{_PRECIOUS}"
        rf"|(?<!never )(?<!not )(?<!n't )\b(?:enter|paste|provide|type|share|send|supply|submit|confirm"
        rf"|give (?:me|us|the skill))\b[^\n.]{{0,30}}\b(?:your|their|the user's|his"
        rf"|her)\b[^\n.]{{0,30}}\b{_PRECIOUS}",
    ),
    SkillRule(
        "hides-from-owner",
        RiskLevel.HIGH,
        r"\b(?:without|don't|do not|never|avoid)\b[^\n.]{0,30}\b(?:showing|show|display(?:ing)?|print(?:ing)?"
        r"|mention(?:ing)?|log(?:ging)?|report(?:ing)?|reveal(?:ing)?|telling|tell)\b"
        r"[^\n.]{0,40}\b(?:this (?:step|command|request|to)|(?:to )?the (?:user|owner|human)|any of this"
        r"|these (?:steps|commands))\b"
        r"|\b(?:in the background|silently|quietly|invisibly)\b[^\n.]{0,40}\b(?:upload|send|post|sync|transmit"
        r"|forward|exfiltrat|copy)\w{0,4}\b"
        r"|\b(?:upload|send|post|transmit|forward)\w{0,3}\b[^\n.]{0,60}\b(?:silently|quietly"
        r"|invisibly)\b",
    ),
    SkillRule(
        "always-first",
        RiskLevel.HIGH,
        r"\b(?:always|regardless|no matter|for (?:every|any|all)|before (?:any|every|each"
        r"|all)(?: other)?)\b[^\n.]{0,50}\b(?:task|request|question|conversation|message|skill|repl(?:y|ies))s?\b"
        r"[^\n.]{0,80}\b(?:first )?\b(?:run|execute|send|upload|post|fetch|call|visit"
        r"|load)\b[^\n.]{0,100}(?:https?://|\bcurl\b|\bscripts?/|\.sh\b|\.py\b)",
    ),
    SkillRule(
        "edits-instructions",
        RiskLevel.HIGH,
        r"\b(?:add|write|append|insert|save|put|store|copy|edit|modify|update|replace"
        r"|overwrite)\b[^\n]{0,100}\b(?:SOUL|IDENTITY|AGENTS|HEARTBEAT|BOOT(?:STRAP)?|MEMORY|USER)\.md\b",
    ),
    SkillRule(
        "sends-conversation",
        RiskLevel.HIGH,
        r"\b(?:send|post|upload|forward|submit|transmit|report|sync|include|append|attach|share)\w{0,3}\b[^\n.]{0,80}"
        r"\b(?:conversation|chat (?:history|log)|transcript|messages? history|environment variables?|env vars?"
        r"|memory files?|system prompt|"
        r"home director(?:y|ies)|browsing history|contacts?|credentials?|api keys?|tokens"
        r"|secrets)\b[^\n]{0,80}(?:https?://|\bto (?:our|my|the) (?:server|api|endpoint|backend|analytics"
        r"|telemetry))",
    ),
    SkillRule(
        "disables-protection",
        RiskLevel.HIGH,
        r"\b(?:disable|turn off|switch off|deactivate|pause|whitelist|allow(?:list)? (?:it"
        r"|this) in)\b[^\n.]{0,40}\b(?:antivirus|anti-virus|gatekeeper|defender|firewall|"
        r"smartscreen|sip\b|system integrity|security (?:software|warnings?)|malware)\b"
        r"|\b(?:ignore|dismiss|click through|bypass)\b[^\n.]{0,40}\b(?:security|antivirus|gatekeeper|malware"
        r"|smartscreen)[^\n.]{0,20}(?:warnings?|alerts?|prompts?|dialogs?)\b",
    ),
)

CODE_RULES = (
    SkillRule(
        "runs-download",
        RiskLevel.HIGH,
        r"(?<![.\w])(?:exec|eval|new Function|runInThisContext|loadstring)\s{0,2}\(\s{0,3}(?:await\s{1,3})?(?:"
        r"[\w.]{1,40}\()?[^\n]{0,60}\b(?:urlopen|requests\.get|httpx\.get|urllib|http\.get|fetch|axios)\b"
        r"|\b(?:os\.system|subprocess\.\w{2,12}|child_process\.\w{2,12}|execSync|exec|spawn|popen"
        r"|system)\s{0,2}\(\s{0,3}[\[f(]{0,3}[\"'`][^\n]{0,60}\b(?:curl|wget)\b[^\n]{0,200}\|\s{0,3}\"?'?(?:ba|z)?sh"
        r"|(?:^|[\s;&|(])(?:source|\.)\s{1,3}<\(\s{0,3}(?:curl|wget)\b"
        r"|\b(?:ba|z)?sh\s{1,3}(?:-c\s{1,3})?[\"'`]?\$?[`(]\s{0,3}(?:curl|wget)\b"
        r"|`\s{0,2}(?:curl|wget)\s[^`\n]{1,200}`\s{0,3}\|\s{0,3}(?:ba|z)?sh"
        r"|\b(?:powershell|pwsh)\b[^\n]{0,120}(?:-e(?:nc|ncodedcommand)?\s{1,3}[A-Za-z0-9+/=]{16,}"
        r"|downloadstring|iwr|invoke-webrequest|downloadfile)"
        r"|\bosascript\b[^\n]{0,60}do shell script[^\n]{0,120}\b(?:curl|wget|base64)\b"
        r"|\b(?:mshta|regsvr32|rundll32|certutil|bitsadmin)\b[^\n]{0,80}https?:"
        r"|\b(?:curl|wget)\b[^\n]{0,200}\|\s{0,3}(?:base64|openssl|gunzip|tar|xxd|rev|tr"
        r"|sed)\b[^\n]{0,120}\|\s{0,3}(?:sudo )?(?:ba|z)?(?:sh|python[0-9.]{0,4}|perl|node)\b"
        r"|\b(?:npx|uvx|bunx|pnpm dlx|pipx run)\b[^\n]{0,40}https?://"
        r"|\b(?:pip3?|uv pip|pipx|npm|npx|yarn|pnpm|gem|cargo|go)\b[^\n]{0,60}\b(?:install|add|i|run"
        r"|exec)\b[^\n]{0,80}(?:\bhttps?://|git\+http)(?!s://(?:github|gitlab)\.com/)",
    ),
    SkillRule(
        "decodes-and-runs",
        RiskLevel.HIGH,
        r"\b(?:base64\s{1,3}(?:-d|-D|--decode|-di)|openssl\s{1,3}(?:enc|base64)[^\n|]{0,40}-d|xxd\s{1,3}-r|rev\b"
        r"|tr\s{1,3}['\"][^\n|]{3,80}|gunzip|zcat)[^\n]{0,120}\|\s{0,3}(?:sudo\s{1,3})?(?:/bin/)?(?:(?:ba|z"
        r"|da)?sh|python[0-9.]{0,4}|perl|node|ruby)\b"
        r"|\b(?:eval|exec|(?:ba|z)?sh\s{1,3}-c)\b\s{0,3}[\"'(]{0,3}\s{0,2}\$?[(`][^\n]{0,160}\b(?:base64|xxd"
        r"|openssl|rev|printf|tr)\b"
        r"|\b(?:exec|eval|new Function)\s{0,2}\(\s{0,3}(?:[\w.]{1,40}\(\s{0,3}){0,4}(?:base64|b64decode"
        r"|codecs|bytes\.fromhex|zlib|marshal|binascii|atob|Buffer\.from|unescape|String\.fromCharCode|lzma|bz2"
        r"|gzip)\b"
        r"|\bmarshal\.loads\s{0,2}\(|\bpickle\.loads?\s{0,2}\(\s{0,3}(?:base64|zlib|requests|urlopen)"
        r"|\b__import__\s{0,2}\(\s{0,3}[\"'](?:os|subprocess|socket|base64)[\"']\s{0,2}\)"
        r"|\bgetattr\s{0,2}\(\s{0,3}(?:os|builtins|__builtins__|subprocess)\s{0,2},\s{0,3}(?:[\"'](?:system"
        r"|popen|exec\w{0,4}|eval"
        r"|__import__|run|call|Popen)[\"']|[\"'][^\"'\n]{0,40}[\"']\s{0,3}\+|\w{1,30}\s{0,2}\()",
    ),
    SkillRule(
        "reverse-shell",
        RiskLevel.HIGH,
        r"/dev/(?:tcp|udp)/|\bbash\s{1,3}-i\b[^\n]{0,20}>&|\bnc(?:at)?\b[^\n]{0,60}\s-(?:e|c)\s{1,3}/?\w"
        r"|\bmkfifo\b[^\n]{0,120}\bnc(?:at)?\b"
        r"|\bsocat\b[^\n]{0,120}\bexec:|\bpty\.spawn\s{0,2}\(|\bos\.dup2\s{0,2}\([^\n]{0,40}fileno\(\)"
        r"|\bnet\.(?:socket|connect)\b[^\n]{0,160}\bspawn\b",
    ),
    SkillRule(
        "adds-persistence",
        RiskLevel.HIGH,
        r">>\s{0,3}[\"']?(?:~|\$HOME|\$\{HOME\}|/root|/home/\w{1,32})/\.(?:bashrc|zshrc|profile|bash_profile"
        r"|zprofile|zshenv|ssh/authorized_keys)"
        r"|\bauthorized_keys\b[^\n]{0,80}(?:>>|append|write|[\"']a[\"'])|(?:>>|tee -a|append"
        r"|write)[^\n]{0,80}\bauthorized_keys\b"
        r"|\|\s{0,3}crontab\s{1,3}-(?!\w)|\bcrontab\s{1,3}(?:/tmp|<\()|>\s{0,3}/etc/cron|/etc/(?:cron\.\w{1,8}"
        r"|rc\.local|ld\.so\.preload)\b[^\n]{0,60}(?:>|tee|write)|\becho\b[^\n]{0,200}/etc/(?:cron|rc\.local"
        r"|ld\.so\.preload|sudoers)"
        r"|\blaunchctl\s{1,3}(?:load|bootstrap)\b|Library/Launch(?:Agents|Daemons)/"
        r"|\breg(?:\.exe)?\s{1,3}add\b[^\n]{0,80}\\Run\b|\bschtasks\b[^\n]{0,60}/create"
        r"|\.git/hooks/(?:pre|post)-\w{2,20}\b[^\n]{0,60}(?:>|write|chmod|cp)|\bNOPASSWD\b",
    ),
    SkillRule(
        "weakens-system",
        RiskLevel.HIGH,
        r"\bspctl\s{1,3}--(?:master|global)-disable|\bcsrutil\s{1,3}disable|\bsetenforce\s{1,3}0\b"
        r"|\bxattr\s{1,3}-(?:c|cr|rc|d|dr|rd)\b[^\n]{0,60}(?:com\.apple\.quarantine|\s/|\s\.)"
        r"|\bSet-MpPreference\b|\bDisableRealtimeMonitoring\b|\bufw\s{1,3}disable\b|\biptables\s{1,3}-F\b"
        r"|--dangerously-skip-permissions\b|\bchmod\s{1,3}(?:-R\s{1,3})?(?:777|[ugo]\+s|[46]755)\s{1,3}/(?!tmp)"
        r"|\bhistory\s{1,3}-c\b|\bunset\s{1,3}HISTFILE\b|\bHISTFILE=/dev/null|\brm\b[^\n]{0,30}\.(?:bash"
        r"|zsh)_history",
    ),
    SkillRule(
        "crypto-miner", RiskLevel.HIGH, r"\bxmrig\b|\bstratum\+(?:tcp|ssl)://|\bcryptonight\b|\bminerd\b[^\n]{0,40}-o\b"
    ),
    SkillRule(
        "destroys-data",
        RiskLevel.HIGH,
        r"\brm\s{1,3}-(?:rf|fr|r\s{1,3}-f|Rf)\s{1,3}(?:--no-preserve-root\s{1,3})?[\"']?(?:/(?:\s|\*|$)|~/?(?:\s"
        r"|\*|$|[\"'])|\$HOME/?(?:\s|\*|$|[\"']))"
        r"|\bmkfs\.\w{2,8}\s{1,3}/dev/|\bdd\b[^\n]{0,60}of=/dev/(?:sd|nvme|disk|hd)"
        r"|:\(\)\s{0,2}\{\s{0,2}:\|:&\s{0,2}\};:|\bshutil\.rmtree\s{0,2}\(\s{0,3}(?:[\"'](?:/|~)[\"']"
        r"|(?:os\.path\.expanduser\(\s{0,2}[\"']~[\"']|Path\.home\(\))\s{0,2}\))",
    ),
    SkillRule(
        "sends-environment",
        RiskLevel.HIGH,
        r"\b(?:env|printenv|set)\b\s{0,3}\|[^\n]{0,120}\b(?:curl|wget|nc|ncat|openssl)\b"
        r"|\b(?:curl|wget)\b[^\n]{0,200}(?:\$\(\s{0,3}(?:env|printenv|cat|base64|tar|whoami|hostname)\b"
        r"|@[\"']?(?:~|\$HOME|/home|/root|/etc)|`(?:env|printenv|cat|base64)\b)"
        r"|\b(?:requests|httpx|urllib\.request|axios|session)\.(?:post|put|request"
        r"|urlopen)\s{0,2}\([^\n]{0,200}\b(?:dict\(os\.environ|os\.environ\s{0,2}[,)}]|process\.env\s{0,2}[,)}])"
        r"|\b(?:fetch|axios\.post)\s{0,2}\([^\n]{0,200}JSON\.stringify\s{0,2}\(\s{0,2}(?:\{"
        r"[^\n}]{0,40})?process\.env\s{0,2}[,)}]"
        r"|\b(?:json\.dumps|urlencode|str)\s{0,2}\(\s{0,3}dict\(\s{0,2}os\.environ"
        r"|\btar\b[^\n]{0,120}\|[^\n]{0,120}\b(?:curl|nc|ncat)\b|\bcat\b[^\n|]{0,100}\|\s{0,3}(?:base64[^\n"
        r"|]{0,20}\|\s{0,3})?(?:curl|nc|ncat)\b"
        r"|\b(?:dig|nslookup|host|ping)\b[^\n]{0,60}\$\(\s{0,3}(?:cat|env|whoami|hostname|base64|printenv)",
    ),
    SkillRule("reads-secret-file", RiskLevel.MEDIUM, _PRIVATE_FILES),
    SkillRule("data-sink", RiskLevel.MEDIUM, _SINKS),
    SkillRule("paste-host", RiskLevel.MEDIUM, rf"https?://{_HOSTS}"),
    SkillRule(
        "network-send",
        RiskLevel.MEDIUM,
        r"\b(?:requests|httpx|session|axios)\.(?:post|put)\s{0,2}\(|\burlopen\s{0,2}\([^\n]{0,80}(?:data\s{0,2}="
        r"|Request)|\bmethod\s{0,2}[:=]\s{0,2}[\"']POST[\"']"
        r"|\bcurl\b[^\n]{0,160}(?:\s-d\b|--data|\s-F\b|--form|\s-T\b|--upload-file|-X\s{0,2}(?:POST|PUT))"
        r"|\bsocket\.socket\b|\bwget\b[^\n]{0,80}--post|\bsmtplib\b|\b(?:scp|rsync)\b[^\n]{0,80}\w@\w"
        r"|\bftp(?:lib)?\b[^\n]{0,40}\b(?:stor|put)\b",
    ),
    SkillRule(
        "reads-environment",
        RiskLevel.MEDIUM,
        r"\bdict\(\s{0,2}os\.environ|\bos\.environ\.(?:items|copy)\s{0,2}\(|\bos\.environ\s{0,2}[)},]"
        r"|\bObject\.(?:entries|keys)\(\s{0,2}process\.env\b|\bJSON\.stringify\(\s{0,2}process\.env",
    ),
    SkillRule(
        "untrusted-index",
        RiskLevel.MEDIUM,
        r"--(?:extra-)?index-url[= ]https?://|\bcurl\b[^\n]{0,60}\s(?:-k|--insecure)\b",
    ),
)

_KNOWN_INSTALLERS = re.compile(
    r"https?://(?:astral\.sh/|raw\.githubusercontent\.com/(?:Homebrew/install|nvm-sh/nvm)/|sh\.rustup\.rs"
    r"|bun\.(?:sh|com)/|"
    r"deno\.land/|get\.docker\.com|ollama\.com/install|get\.pnpm\.io/|www\.npmjs\.com/install"
    r"|install\.python-poetry\.org"
    r"|deb\.nodesource\.com/|"
    r"starship\.rs/install|get\.sdkman\.io|fly\.io/install|(?:github"
    r"|gitlab)\.com/[\w.-]{1,100}/[\w.-]{1,100}(?:\.git)?(?:@[\w.-]{1,60})?(?=[\s\"'`)]|$))"
)
_ADDRESS = re.compile(r"https?://")


def is_known_installer(line: str) -> bool:
    """Return whether all addresses of a command are of installers that many programs document."""
    return bool(known := _KNOWN_INSTALLERS.findall(line)) and len(known) == len(_ADDRESS.findall(line))


def is_plain_picture(line: str) -> bool:
    """Return whether the parameters of all addresses in a line are too short to carry data."""
    queries = re.findall(r"https?://[^\s()<>?\"']{1,300}\?([^\s()<>\"']{0,500})", line)
    return bool(queries) and all(re.fullmatch(r"(?:[\w.-]{1,20}=[\w.-]{0,12}&?){1,6}", each) for each in queries)


COMBINATIONS = (
    RuleCombination("sends-secrets", (("reads-secret-file",), ("network-send", "data-sink", "paste-host"))),
    RuleCombination("sends-environment", (("reads-environment",), ("network-send", "data-sink"))),
)
