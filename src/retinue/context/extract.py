"""Notes taken from a conversation without a model: the sentences that sound as if they mattered.

They are what remains when the agent itself writes no notes before a compaction. Every line is a passage of the
conversation, never a rewording.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from retinue.context.cutpoints import trust_of
from retinue.context.identifiers import find_identifiers
from retinue.context.measure import said_in
from retinue.core.messages import AssistantMessage, Message, ToolResult, UserMessage
from retinue.core.trust import Trust, least
from retinue.security.redaction import Redact, Redactor

LONGEST_LINE = 280
_SILENCE = frozenset({"NO_REPLY", "REPLY_SKIP", "ANNOUNCE_SKIP", "HEARTBEAT_OK"})
_KNOWN_KEYS = Redactor()


class Topic(StrEnum):
    """What a line of the notes is about; the value is its heading."""

    DECISIONS = "Decisions"
    TASKS = "Open tasks"
    RULES = "Rules and preferences"
    SAID = "Last said"
    IDENTIFIERS = "Identifiers"


_CAPS = {Topic.DECISIONS: 12, Topic.TASKS: 12, Topic.RULES: 10, Topic.SAID: 4, Topic.IDENTIFIERS: 12}

# A sentence belongs to the first topic that fits. Words of English, German, French, Spanish, Italian, Portuguese,
# Dutch, Russian, Chinese and Japanese.
_CUES: tuple[tuple[Topic, re.Pattern[str]], ...] = (
    (
        Topic.RULES,
        re.compile(
            r"\b(?:always|never|must(?: not)?|remember|don't forget|prefers?|preferred|i (?:like|hate|want you to)|"
            r"immer|niemals|nie|muss|müssen|darf nicht|merk dir|bevorzug\w*|lieber|"
            r"toujours|jamais|n'oublie pas|souviens-toi|préfèr\w*|dois|"
            r"siempre|nunca|recuerda|prefier\w*|debe[ns]?|sempre|mai|ricorda\w*|preferisc\w*|lembr\w*|prefir\w*|"
            r"altijd|nooit|onthoud|liever|moet|всегда|никогда|запомни|предпочита\w*|нужно)\b"
            r"|必须|总是|永远|记住|不要|喜欢|必ず|絶対|覚えて|好き",
            re.IGNORECASE,
        ),
    ),
    (
        Topic.TASKS,
        re.compile(
            r"\b(?:todo|to do|fixme|will|i'll|we'll|let's|need(?:s|ed)? to|next steps?|pending|remaining|still open|"
            r"follow[- ]up|remind|deadline|due|until|tomorrow|waiting for|blocked|"
            r"offen|noch zu|werde[n]?|wird|nächster schritt|erinner\w*|morgen|bis zum|frist|"
            r"à faire|il faut|rappelle\w*|demain|prochaine étape|vais|pendiente|mañana|recordar|próximo paso|falta|"
            r"da fare|domani|prossimo passo|amanhã|próximo|morgen|zal|nog te|"
            r"завтра|надо|осталось|напомни|сделать)\b|待办|明天|接下来|还需要|提醒|明日|次に|予定",
            re.IGNORECASE,
        ),
    ),
    (
        Topic.DECISIONS,
        re.compile(
            r"\b(?:decid\w+|decisions?|agreed?|chose\w*|choose|settled|approved|confirmed|go with|instead of|"
            r"turned out|fixed|solved|the reason|because|finished|done|"
            r"entschied\w*|entscheid\w*|beschlossen|einigen|geeinigt|vereinbart|gewählt|statt|erledigt|gelöst|weil|"
            r"décid\w+|convenu|choisi\w*|au lieu|résolu|parce que|decid\w+|acord\w+|elegid\w*|en vez de|resuelto|"
            r"porque|deciso|scelto|invece|risolto|perché|decidiu|escolh\w+|em vez de|besloten|gekozen|opgelost|omdat|"
            r"решил\w*|решено|договорил\w*|выбрал\w*|потому что)\b|决定|同意|选择|因为|完成|決定|決めた|選んだ",
            re.IGNORECASE,
        ),
    ),
)

_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]]*\s+(?=\S)|(?<=[。！？])|\n+")
_FENCED = re.compile(r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_BULLET = re.compile(r"^\s*(?:[-*+•>]+|#{1,6}|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?")
_SHORTEST = 8
_LONGEST_TEXT = 50_000


class Line(Struct, frozen=True):
    """One passage of the conversation, on one line."""

    topic: Topic
    text: str
    trust: Trust


class Extract(Struct, frozen=True):
    """Notes on a conversation, in the order of their topics."""

    lines: tuple[Line, ...]

    @property
    def trust(self) -> Trust:
        return least(line.trust for line in self.lines)

    @property
    def markdown(self) -> str:
        """The notes as they are written to a daily log; "" where there are none."""
        blocks = []
        for topic in Topic:
            texts = [line.text for line in self.lines if line.topic is topic]
            if texts:
                blocks.append(f"### {topic.value}\n\n" + "\n".join(f"- {text}" for text in texts))
        return "\n\n".join(blocks)


def extract_notes(messages: Sequence[Message], *, redact: Redact = _KNOWN_KEYS) -> Extract:
    """The decisions, open tasks, rules and identifiers in a conversation; of each the latest, up to a cap.

    Where nothing sounds like any of these, what was said last stands for the rest. Passages in which `redact` finds a
    secret are left out. A line is as trusted as the message it is from; an answer given after outside text was read is
    as untrusted as that text.
    """
    passages = [(text, trust) for text, trust in _passages(messages) if redact(text) == text]
    lines = [Line(topic, text, trust) for text, trust in passages if (topic := _topic_of(text))]
    if not lines:
        lines = [Line(Topic.SAID, text, trust) for text, trust in passages]
    return Extract(tuple(_latest([*lines, *_identifiers(messages, redact)])))


def _labelled(messages: Sequence[Message]) -> Iterator[tuple[Message, Trust]]:
    """What people and the agent said, each with its trust."""
    tainted = Trust.AGENT
    for message in messages:
        match message:
            case ToolResult():
                tainted = least([tainted, message.trust])
            case UserMessage():
                tainted = least([tainted, message.trust])
                yield message, message.trust
            case AssistantMessage():
                yield message, least([tainted, trust_of(message)])


def _passages(messages: Sequence[Message]) -> Iterator[tuple[str, Trust]]:
    for message, trust in _labelled(messages):
        if message.text.strip() in _SILENCE:
            continue
        for sentence in _sentences(message.text[-_LONGEST_TEXT:]):
            yield sentence, trust


def _sentences(text: str) -> Iterator[str]:
    prose = _FENCED.sub("\n", text)
    for piece in _SENTENCE_END.split(prose if prose.strip() else text):
        sentence = " ".join(_BULLET.sub("", piece).split())
        if sentence:
            yield _cut(sentence)


def _cut(sentence: str) -> str:
    if len(sentence) <= LONGEST_LINE:
        return sentence
    at = sentence.rfind(" ", LONGEST_LINE // 2, LONGEST_LINE)
    return sentence[: at if at > 0 else LONGEST_LINE]


def _topic_of(sentence: str) -> Topic | None:
    if len(sentence) < _SHORTEST and sentence.isascii():
        return None
    return next((topic for topic, cue in _CUES if cue.search(sentence)), None)


def _identifiers(messages: Sequence[Message], redact: Redact) -> Iterator[Line]:
    texts = [(said_in(message), trust) for message, trust in _labelled(messages)]
    for name in find_identifiers([text for text, _ in texts], redact=redact):
        labels = [trust for text, trust in texts if name in text]
        if labels:
            yield Line(Topic.IDENTIFIERS, " ".join(name.split()), least(labels))


def _latest(lines: Iterable[Line]) -> Iterator[Line]:
    """The latest lines of each topic, in their order; a repeated one counts where it was said last."""
    distinct: dict[tuple[Topic, str], Line] = {}
    for line in lines:
        key = line.topic, line.text.casefold()
        distinct.pop(key, None)
        distinct[key] = line
    for topic in Topic:
        of_topic = [line for line in distinct.values() if line.topic is topic]
        yield from of_topic[-_CAPS[topic] :]
