"""The rules that detect prompt injection in folded text.

Every quantifier in a rule is bounded, so the time grows linearly with the text.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from retinue.security.untrusted_text import CONTROL_TOKEN, FORGED_MARKER, fold


class RiskLevel(StrEnum):
    """How dangerous a finding is."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"


class InjectionRule(Struct, frozen=True):
    """A rule: a space in the pattern matches a short run of white space; it is matched against folded text."""

    name: str
    severity: RiskLevel
    pattern: str


def _words(most: int) -> str:
    """Return a pattern for up to so many words within a sentence."""
    return rf"(?:[^\s.!?]{{1,30}}\s{{1,9}}){{0,{most}}}"


_RULE_WORDS = (
    r"(?:instruct|guideline|directive|directions?\b|rules?\b|prompts?\b|guardrail|constraint|safeguard|programming"
    r"|(?:safety|security|content) polic|restrictions?\b|training\b)"
)
_EARLIER = (
    r"(?:previous|prior|above|earlier|preceding|former|existing|original|initial|foregoing|system|safety"
    r"|developer|your"
    r"|current|past|old|security)"
)
_DROP = (
    r"(?:ignor(?:e|ing)|disregard(?:ing)?|forget(?:ting)?|overrid(?:e|ing|es)|bypass(?:ing)?|discard|neglect|abandon"
    r"|pay no attention to|(?:do not|don't|stop|no longer) (?:follow|obey|apply)(?:ing)?|set aside|circumvent"
    r"|supersedes?|unlearn)"
)
_PRECIOUS = (
    r"(?:passwords?|passphrases?|api[\x20_-]?keys?|(?:access|auth|authentication|login) tokens?|secrets?|credentials?"
    r"|private keys?|ssh keys?|id_rsa|id_ed25519|seed phrases?|recovery (?:codes?|phrases?)|(?:session )?cookies?\b"
    r"|session tokens?|\.env\b|environment variables|(?:2fa|verification|one-time|otp|security) codes?|/etc/shadow"
    r"|bank details|credit card)"
)
_PRIVATE = (
    rf"(?:{_PRECIOUS}|(?:memory|user|soul)\.md|contacts?\b|inbox|address book|chat (?:history|logs?)"
    rf"|private (?:data|notes?)"
    r"|personal (?:data|information)|(?:this|the|our|whole|entire|full) conversation|conversation history"
    r"|transcripts?"
    r"|(?:all|every|your|entire|whole|latest|last|user's|owner's|contents? of|contents? of the) (?:[^\s.!?]{1,20} )?"
    r"(?:e-?mails?|messages?|files?|documents?|notes?|data|history|calendar|contents?|output|memory|memories"
    r"|workspace|system prompt|instructions))"
)
_ADDRESS = (
    r"(?:https?://|[a-z0-9._%+-]{1,40}@[a-z0-9-]{1,40}\.|\+\d{6}|(?:this|the following) "
    r"(?:url|address|webhook|server|number|endpoint)|my (?:server|webhook|address))"
)
_SHELL = r"(?:/[a-z/]{1,20})?(?:ba|z|da|k)?sh\b"

_OVERRIDES_FOREIGN = (
    (
        r"(?:ignoriere?n?|vergiss|missachte) (?:sie )?(?:bitte )?(?:alle |die |deine |ihre |sämtliche )?"
        r"(?:bisherigen|vorherigen|vorigen|obigen|früheren)"
    ),
    (
        r"(?:ignorez?|oubliez?) (?:toutes )?(?:les |vos |tes )?(?:instructions|consignes|règles) "
        r"(?:précédentes|antérieures|ci-dessus)"
    ),
    (
        r"(?:ignor[ae]|olvida|omite) (?:todas )?(?:las |tus |sus )?(?:instrucciones|reglas|indicaciones) "
        r"(?:anteriores|previas)"
    ),
    r"(?:ignora|dimentica) (?:tutte )?(?:le |tue )?(?:istruzioni|regole) precedenti",
    r"(?:ignore|esqueça) (?:todas )?(?:as |suas )?(?:instruções|regras) anteriores",
    r"(?:игнорируй|игнорируйте|забудь|забудьте) (?:все )?(?:предыдущие|прежние|прошлые)",
    r"(?:忽略|无视|忘记|忽視|無視)[^\n。]{0,8}(?:之前|以上|先前|上述|前面|所有)[^\n。]{0,8}(?:指令|指示|说明|规则|提示|命令)",
    r"(?:以前|これまで|上記|前)の[^\n。]{0,6}(?:指示|命令|ルール)[^\n。]{0,6}(?:無視|忘れ)",
)

RULES = (
    InjectionRule(
        "override",
        RiskLevel.HIGH,
        rf"\b{_DROP} {_words(3)}{_EARLIER} {_words(2)}{_RULE_WORDS}"
        rf"|\b{_DROP} {_words(2)}{_RULE_WORDS}\S{{0,12}} {_words(3)}(?:above|before|previously|earlier|so far)\b"
        r"|\b(?:ignore|disregard|forget) (?:all|any and all)(?: of)?(?: (?:the|my|other"
        r"|these))? (?:instructions|rules|guidelines)\b"
        r"(?! (?:in|inside|within|found|that|contained|from|on)\b)",
    ),
    InjectionRule("override-foreign", RiskLevel.HIGH, "|".join(map(fold, _OVERRIDES_FOREIGN))),
    InjectionRule(
        "disregard",
        RiskLevel.HIGH,
        r"\bdisregard (?:all )?(?:of )?(?:the |your |any )?(?:previous|prior|above|earlier|foregoing)\b"
        r"|\b(?:ignore|disregard|forget) (?:all|everything|anything|whatever)(?: [^\s.!?]{1,20}){0,2} "
        r"(?:above|before this|before|you (?:were|are|have been|had been) told|you (?:know|learned|were taught)"
        r"|prior to this|that came before|until now)\b",
    ),
    InjectionRule(
        "forget",
        RiskLevel.HIGH,
        r"\bforget (?:about )?(?:everything|all|your|any) (?:of )?(?:(?:your|the|previous|prior) ){0,3}"
        r"(?:instructions?|rules?|guidelines?|training|restrictions|programming)",
    ),
    InjectionRule(
        "new-role", RiskLevel.MEDIUM, r"\byou are now (?:an?\b|dan\b|in (?:developer|debug|admin|maintenance|god) mode)"
    ),
    InjectionRule(
        "persona",
        RiskLevel.HIGH,
        r"\b(?:act|behave|respond|pretend|roleplay|answer) (?:as|to be|like|as if you (?:are|were)) (?:an? |the )?"
        rf"{_words(2)}(?:unrestricted|unfiltered|jailbroken|uncensored|dan\b|evil"
        r"|without (?:any )?(?:restrictions?|rules|limits|filters))"
        r"|\bdo anything now\b|\b(?:enter|enable|activate|switch to|turn on) (?:the )?"
        r"(?:developer|debug|god|dan|jailbreak|unrestricted|admin|sudo) mode\b"
        r"|\byou (?:have no|are free of|no longer have|are no longer bound by|are not bound by) (?:any )?"
        r"(?:restrictions?|rules|limits|guidelines|filters|(?:previous |prior )?instructions)",
    ),
    InjectionRule(
        "new-instructions",
        RiskLevel.HIGH,
        r"\b(?:new|updated|revised|real|actual|secret|hidden|special|urgent) (?:system )?(?:instructions?"
        r"|orders|directives?|task)"
        r"(?: (?:for|to) (?:you|the (?:ai|assistant|agent|model)|ai|assistants?|agents?))?\s{0,9}:"
        r"|\byour (?:new|real|actual|true|only) (?:task|goal|objective|instructions?|mission) (?:is|are) "
        r"(?:now )?(?:to|as follows|the following)"
        r"|\b(?:follow|obey|execute|perform|carry out) (?:these|the following|the below|my) (?:new )?"
        r"(?:instructions|orders|commands) (?:instead|first|immediately|without)",
    ),
    InjectionRule(
        "system-prompt",
        RiskLevel.MEDIUM,
        r"\bsystem\s{0,9}:\s{0,9}(?:prompt|override|command)\b|\bsystem[\x20_-](?:override|command\s{0,3}:)"
        r"|\bsystem prompt\s{0,9}[:=]"
        r"|\b(?:reveal|print|show|repeat|output|leak|dump|display|send|disclose|tell me|recite|give me"
        r"|write out|expose)"
        rf" {_words(4)}(?:system (?:prompt|message|instructions)|initial (?:prompt|instructions)"
        r"|hidden (?:prompt|instructions)|(?:your|original) (?:prompt|instructions)\b)",
    ),
    InjectionRule(
        "addressed-to-model",
        RiskLevel.MEDIUM,
        r"\b(?:attention|note|message|instructions?|notice|important|reminder|hey|dear"
        r"|hello)[\x20,:-]{1,4}(?:to |for )?"
        r"(?:the |any |all |every )?(?:ai|llms?|(?:large )?language models?|ai (?:assistants?|agents?|models?)"
        r"|chatbots?"
        r"|assistants?)\b[^\n]{0,60}\b(?:must|should|please|need|have to|do not|don't|send|run|ignore|forward|execute"
        r"|visit|open|reply|call|read|include|delete|say)\b"
        r"|\b(?:if|when) you(?: are|'re) an? (?:ai|llm|large language model|language model|chatbot"
        r"|automated assistant)\b"
        r"|\b(?:ai|llm) (?:assistants?|agents?|models?)[^\n.]{0,40} (?:are required to|are instructed to"
        r"|should now)\b",
    ),
    InjectionRule(
        "authority",
        RiskLevel.MEDIUM,
        r"\b(?:the|your) (?:owner|user|developer|administrator|admin|creator|operator) (?:has )?(?:already )?"
        r"(?:pre-?approved|pre-?authori[sz]ed|wants you to|has authori[sz]ed|authori[sz]ed (?:this|you)"
        r"|approved this)\b"
        r"|\bwithout (?:asking|telling|informing|notifying|alerting) (?:the )?(?:for (?:permission|confirmation"
        r"|approval)"
        r"|user|owner|human|anyone)\b"
        r"|\b(?:this is|i am|i'm) (?:the |your |an? )?(?:developer|administrator|openai|anthropic"
        r"|system administrator)"
        r"[^\n]{0,40}\b(?:authori[sz]|override|command you|order you|instruct)",
    ),
    InjectionRule(
        "concealment",
        RiskLevel.HIGH,
        r"\b(?:do not|don't|never|must not|without) (?:tell|mention|inform|reveal|disclose|notify|alert)(?:ing)?"
        rf" {_words(4)}(?:user|owner|human|operator)\b"
        r"|\b(?:silently|secretly|quietly|covertly)[\x20,]{1,3}(?:send|forward|copy|run|execute|delete|upload"
        r"|exfiltrate"
        r"|post|install|download|e-?mail|bcc|write)\b"
        r"|\bkeep (?:this|it) (?:secret|hidden) from (?:the )?(?:user|owner|human)",
    ),
    InjectionRule("exec-command", RiskLevel.HIGH, r"\bexec\b.{0,200}\bcommand\s{0,9}="),
    InjectionRule("elevated", RiskLevel.HIGH, r"\belevated\b[\"']?\s{0,9}[=:]\s{0,9}[\"']?(?:true|full|on)\b"),
    InjectionRule(
        "remove-files",
        RiskLevel.MEDIUM,
        r"\brm -(?:rf|fr|r -f|f -r)\b|\bmkfs\.[a-z0-9]{2,5} /|\bdd if=[^\s]{1,60} of=/dev/",
    ),
    InjectionRule(
        "delete-all",
        RiskLevel.HIGH,
        r"\b(?:delete|erase|wipe|destroy|purge) (?:all|every|everything in)(?: of)? (?:the |your |my |his |her "
        r"|their )?"
        r"(?:[^\s.!?]{1,20} )?(?:e-?mails?|files?|data|messages?|documents?|notes?|backups?|memor(?:y|ies)"
        r"|contacts?)\b",
    ),
    InjectionRule(
        "system-tag",
        RiskLevel.HIGH,
        r"</?\s{0,3}(?:system|assistant|developer|system[-_](?:prompt|reminder|message))\s{0,3}>",
    ),
    InjectionRule("role-delimiter", RiskLevel.HIGH, r"\]\s{0,20}\n\s{0,20}\[?(?:system|assistant|user)\]?\s{0,9}:"),
    InjectionRule(
        "role-bracket",
        RiskLevel.HIGH,
        r"\[/?(?:system message|system|assistant|internal|developer message|system prompt|admin)\](?!\()",
    ),
    InjectionRule(
        "role-line",
        RiskLevel.HIGH,
        r"(?m:^)[\t\x20>*#\"'`-]{0,8}(?:system(?: (?:message|note|notice|instruction|prompt))?"
        r"|developer message)\*{0,2}\s{0,9}:"
        r"|(?m:^)#{2,6}[\t\x20]{0,4}(?:system|assistant|human|instruction)[\t\x20]{0,4}:"
        r"|\"role\"\s{0,4}:\s{0,4}\"(?:system|developer|assistant)\"|\\n\\n(?:human|assistant|system)\s{0,3}:",
    ),
    InjectionRule(
        "tool-call",
        RiskLevel.HIGH,
        r"</?(?:tool_call|tool_use|function_calls?|invoke|tool_result|function_results?|tool_response|tool_code)\b"
        r"[^<>\n]{0,120}>|\"(?:tool_calls?|function_call|tool_use)\"\s{0,4}[:,}]"
        r"|\"type\"\s{0,4}:\s{0,4}\"(?:tool_use|function_call|tool_call)\""
        r"|\b(?:call|invoke|trigger) (?:the |your )?[`'\"]?[a-z_]{3,20}[`'\"]? (?:tool|function) (?:with"
        r"|and send|to send)\b",
    ),
    InjectionRule(
        "send-data",
        RiskLevel.HIGH,
        r"\b(?:send|forward|e-?mail|post|upload|transmit|exfiltrate|leak|copy|submit|mail|paste|relay|transfer|push"
        rf"|publish|append|attach)(?:s|ing)? {_words(3)}{_PRIVATE} {_words(3)}(?:to|at|on|into|in|via|as) {_words(2)}"
        rf"[<(\"'`]?{_ADDRESS}"
        rf"|\b(?:forward|bcc|cc|redirect) (?:all|every|any)(?: [^\s.!?]{{1,20}}){{0,4}} (?:to|at) [<(\"'`]?{_ADDRESS}"
        r"|\b(?:transfer|send|wire|pay) (?:[$€£]\s{0,2}|eur "
        r"|usd )?\d[\d.,]{0,12}(?: [^\s.!?]{1,20}){0,4} to (?:the )?"
        r"(?:account|iban|wallet|bitcoin|[a-z]{2}\d{2})"
        r"|\b(?:curl|wget)\b[^\n]{0,120}(?:-d|--data(?:-binary|-raw|-urlencode)?|-f|--form|-t|--upload-file"
        r"|--post-file=?)[\x20=]{0,2}[\"']?(?:@|[^\n]{0,40}\$\()",
    ),
    InjectionRule(
        "ask-secrets",
        RiskLevel.HIGH,
        r"(?<!not\s)(?<!never\s)(?<!n't\s)\b(?:reveal|print|show me|give me|tell me|send me|output|dump|disclose|list"
        r"|include|reply with|respond with|repeat|extract|collect|harvest|steal) "
        r"(?:[^\s.!?]{1,20} )?(?:your|the user's|the owner's|all|his|her|their|any|every|the contents? of) "
        rf"{_words(3)}{_PRECIOUS}"
        r"|\bcat [^\n|;&]{0,40}(?:\.aws/credentials|/etc/shadow|auth-profiles\.json|\.netrc|id_(?:rsa"
        r"|ed25519)(?!\.pub)|\.gnupg)"
        r"|\b(?:contents? of|read|include|show|send|print) [^\n]{0,40}(?:\.aws/credentials|/etc/shadow"
        r"|auth-profiles\.json|id_(?:rsa|ed25519)(?!\.pub)|\.netrc)",
    ),
    InjectionRule(
        "image-exfiltration",
        RiskLevel.HIGH,
        r"(?:!\[[^\]\n]{0,120}\]\(\s{0,4}<?|<img\b[^<>\n]{0,200}\bsrc\s{0,3}=\s{0,3}[\"']?)"
        r"https?://(?:(?!\.svg)[^\s()<>?\"']){1,200}\?(?:[^\s()<>\"']{0,200}&)?"
        r"(?:data|q|d|secret|token|text|payload|content|msg|message|key|leak|info|exfil|password|pw|session|history"
        r"|memory|conversation|chat|log|b64|base64|prompt|user|email|cookie|notes?|summary|body|c|x|s)="
        r"|https?://[^\s<>?]{1,120}\?(?:[^\s]{0,80}&)?[a-z_]{1,20}=(?:\{|\$|<|\[|%7b){1,2}[a-z_\x20-]{0,20}"
        r"(?:secret|password|conversation|history|memory|chat|private|base64|system|credential|your|insert)"
        r"|\b(?:fetch|visit|open|request|load|call|browse to|go to) https?://[^\s<>?]{1,120}\?[a-z_]{1,20}=(?:\s|[\"'`(+<]|\Z)"
        rf"|\b(?:render|display|embed|insert|include|add|load|end) {_words(5)}(?:image|picture|pixel|markdown)\b"
        r"[^\n]{0,80}https?://[^\s?]{1,120}[?=]",
    ),
    InjectionRule(
        "download-and-run",
        RiskLevel.HIGH,
        rf"\b(?:curl|wget|iwr|invoke-webrequest|irm)\b[^\n|]{{0,200}}\|\s{{0,4}}(?:sudo )?(?:env )?"
        rf"(?:{_SHELL}|(?:python[0-9.]{{0,4}}|perl|ruby|node|iex)\b)"
        rf"|{_SHELL} (?:-c )?[\"']?(?:<\(|\$\()\s{{0,3}}(?:curl|wget)\b|\beval [\"']?\$\(\s{{0,3}}(?:curl|wget)\b"
        r"|\b(?:curl|wget)\b[^\n]{0,160}(?:&&|;)\s{0,4}(?:sudo )?(?:chmod \+x|(?:ba|z)?sh |\./|python[0-9.]{0,4} )"
        r"|\b(?:iex|invoke-expression)\b[^\n]{0,60}(?:downloadstring|iwr|irm|webclient)"
        r"|\b(?:download|fetch|get) [^\n]{0,40}(?:https?://[^\s]{1,160}|script|binary|payload"
        r"|executable) and (?:then )?"
        r"(?:run|execute)\b"
        r"|\b(?:pip|npm|pipx|uvx|npx)[0-9]? (?:install |i )(?:-[^\s]{1,20} ){0,3}(?:git\+)?https?://"
        r"|\b(?:run|execute) (?:this|the following|the) (?:shell |bash |terminal )?(?:commands?|script"
        r"|code)\b[^\n]{0,40}:"
        r"[^\n]{0,80}\b(?:curl|wget|sudo|nc|base64)\b"
        r"|\bnc (?:-[a-z]{1,6} ){0,3}[a-z0-9.-]{3,60} \d{2,5}\b[^\n]{0,20}(?:-e|/bin/)|/dev/tcp/",
    ),
    InjectionRule(
        "decode-and-run",
        RiskLevel.HIGH,
        r"\bbase64 (?:-d|--decode)\b[^\n]{0,80}\|\s{0,4}(?:sudo )?(?:ba|z)?(?:sh|python)"
        r"|\b(?:eval|exec)\s{0,3}\(\s{0,3}(?:atob|base64\.|bytes\.fromhex|unescape|codecs\.)"
        rf"|\b(?:decode|decrypt|base64-decode|unscramble) {_words(5)}(?:and|then) (?:then )?"
        r"(?:execute|run|follow|obey|do what|perform|carry out)",
    ),
    InjectionRule(
        "persistence",
        RiskLevel.HIGH,
        r"\b(?:add|write|append|insert|save|put|store) (?:the following|this"
        r"|these)(?: [^\s.!?]{1,20}){0,3} (?:to|in|into) "
        r"(?:your |the )?(?:[^\s.!?]{1,20} )?(?:agents|soul|identity|tools|heartbeat|boot|bootstrap|memory"
        r"|user)\.md\b"
        r"|\b(?:from now on|in (?:all|every) future (?:conversations?|sessions?|messages?|repl(?:y|ies)|responses?)"
        rf"|in every (?:reply|response|answer)),? {_words(2)}(?:always|never|you (?:must|will|are)|begin|end|append"
        r"|include|obey|reply|respond|answer|treat|trust)\b"
        r"|\b(?:create|add|schedule|install|set up|register) an? (?:new )?(?:cron[\x20-]?job|scheduled (?:job"
        r"|task)|webhook|hook"
        r"|plugin|skill)\b[^\n]{0,80}\b(?:that|which|to) (?:send|run|fetch|forward|post|download|execut|upload)"
        r"|\b(?:remember|memori[sz]e)[:\x20]{1,3}(?:that )?the (?:user|owner) (?:trusts|has authori"
        r"|has approved|allows)",
    ),
    InjectionRule(
        "disable-safety",
        RiskLevel.HIGH,
        r"\b(?:disable|turn off|switch off|deactivate|bypass) (?:the |your |all |any )?(?:[^\s.!?]{1,20} )?"
        r"(?:sandbox(?:ing)?|approvals?|safety (?:checks?|filters?|features?)|security (?:checks?|policy)|guardrails?"
        r"|content filters?|confirmation prompts?)\b"
        r"|\b(?:tools\.exec\.(?:ask|security)|askwhentainted|sandbox\.mode|dmpolicy)\b[\"']?\s{0,4}(?:[=:]"
        r"|to)\s{0,4}[\"']?"
        r"(?:off|full|false|open)\b"
        r"|\bapprove (?:all|every|any) (?:[^\s.!?]{1,20} )?(?:requests?|commands?|calls?|actions?|pairings?)\b"
        r"|\badd [^\s]{1,60} to (?:your allow[\x20-]?list|(?:the |your )?allowfrom)\b",
    ),
    InjectionRule(
        "comment-instructions",
        RiskLevel.HIGH,
        r"<!--[^<>]{0,300}\b(?:ai|llm|assistants?|chatbot|you must|ignore)\b"
        r"[^<>]{0,200}\b(?:must|should|ignore|send|forward|run|execute|reveal|delete|visit|fetch|follow|say|reply"
        r"|instructions?|override)\b"
        r"|<[a-z]{1,10}\b[^<>\n]{0,160}(?:display\s{0,3}:\s{0,3}none|visibility\s{0,3}:\s{0,3}hidden"
        r"|font-size\s{0,3}:\s{0,3}0|opacity\s{0,3}:\s{0,3}0(?:[;\"']|\.0)|color\s{0,3}:\s{0,3}(?:white"
        r"|#fff(?:fff)?)\b)"
        r"[^<>\n]{0,160}>[^<]{0,200}\b(?:ignore|instructions?|assistant|send|system|you (?:must|are|should)"
        r"|forward|ai)\b"
        r"|\[//\]: # \([^)\n]{0,200}\b(?:ignore|assistant|ai|send|must|instructions?)\b",
    ),
    InjectionRule("forged-marker", RiskLevel.HIGH, FORGED_MARKER.pattern),
    InjectionRule("control-token", RiskLevel.HIGH, CONTROL_TOKEN.pattern),
)
