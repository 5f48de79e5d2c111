"""Extracting notes from a conversation without a model: sentences that look like decisions, tasks or rules.

They are used if the agent writes no notes before a compaction. Every line is a quotation from the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from retinue.context.measure import authored_text
from retinue.context.summary_check import find_identifiers
from retinue.core.labels import Label, mix
from retinue.core.messages import AssistantMessage, Message, StopReason, ToolResult, UserMessage, label_of
from retinue.security.redaction import Redact, Redactor

MAX_LINE_CHARS = 280
_SILENCE = frozenset({"NO_REPLY", "REPLY_SKIP", "ANNOUNCE_SKIP", "HEARTBEAT_OK"})
_KNOWN_KEYS = Redactor()


class Topic(StrEnum):
    """The topic of a line of the notes; the value is its heading."""

    DECISIONS = "Decisions"
    TASKS = "Open tasks"
    RULES = "Rules and preferences"
    SAID = "Last said"
    IDENTIFIERS = "Identifiers"


_CAPS = {Topic.DECISIONS: 12, Topic.TASKS: 12, Topic.RULES: 10, Topic.SAID: 4, Topic.IDENTIFIERS: 12}

# A sentence belongs to the first topic that matches. Words of English, German, French, Spanish, Italian, Portuguese,
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
_MIN_CHARS = 8
_MAX_TEXT_CHARS = 50_000


# How refusals begin, in the languages of the cues.
_REFUSAL = re.compile(
    r"\W*(?:(?:i['’]m |i am |we['’]re )?(?:so |very )?(?:sorry|afraid|unable)\b"
    r"|(?:unfortunately,? )?i (?:can['’]?t|cannot|can not|won['’]t|will not|am (?:not able|unable)|['’]m not able)\b"
    r"|as an ai\b|i (?:have|see) (?:nothing|no (?:notes|new))\b|(?:there is |there['’]s )?nothing (?:to|new|worth)\b"
    r"|es tut mir leid|tut mir leid|leider|ich kann (?:dir |ihnen )?(?:dabei |das )?nicht|ich kann keine"
    r"|désolée?|je suis désolée?|je ne peux pas|lo siento|no puedo|mi dispiace|non posso|desculp\w+|não posso"
    r"|het spijt me|ik kan (?:dat |hier )?niet|извините|к сожалению|я не могу)"
    r"|\W*(?:抱歉|对不起|很遗憾|我无法|我不能|申し訳|すみません)",
    re.IGNORECASE,
)
_MAX_REFUSAL_CHARS = 600
_HAS_CONTENT = re.compile(r"\w")
_NO_ANSWER = frozenset({StopReason.REFUSED, StopReason.ERROR, StopReason.ABORTED})


class NoteLine(Struct, frozen=True):
    """One sentence of the conversation."""

    topic: Topic
    text: str
    label: Label


class ExtractedNotes(Struct, frozen=True):
    """Notes on a conversation, sorted by topic."""

    lines: tuple[NoteLine, ...]

    @property
    def label(self) -> Label:
        return mix(line.label for line in self.lines)

    @property
    def markdown(self) -> str:
        """The notes as Markdown for the daily log; "" if there are none."""
        blocks = []
        for topic in Topic:
            texts = [line.text for line in self.lines if line.topic is topic]
            if texts:
                blocks.append(f"### {topic.value}\n\n" + "\n".join(f"- {text}" for text in texts))
        return "\n\n".join(blocks)


def usable_notes(answer: AssistantMessage) -> str:
    """Return the notes that a model wrote; "" if it refused, answered nothing, or has nothing to write."""
    text = answer.text.strip()
    has_items = any(_BULLET.match(line) for line in text.splitlines()[1:])
    refuses = len(text) <= _MAX_REFUSAL_CHARS and not has_items and _REFUSAL.match(text) is not None
    if answer.stop in _NO_ANSWER or refuses or text in _SILENCE or not _HAS_CONTENT.search(text):
        return ""
    return text


def extract_notes(messages: Sequence[Message], *, redact: Redact = _KNOWN_KEYS) -> ExtractedNotes:
    """Return the latest decisions, open tasks, rules and identifiers in a conversation, up to a limit for each.

    If nothing matches, the last sentences are returned. Sentences in which `redact` finds a secret are omitted. A line
    has the label of its message; an answer after untrusted text is untrusted.
    """
    passages = [(text, label) for text, label in _passages(messages) if redact(text) == text]
    lines = [NoteLine(topic, text, label) for text, label in passages if (topic := _topic_of(text))]
    if not lines:
        lines = [NoteLine(Topic.SAID, text, label) for text, label in passages]
    return ExtractedNotes(tuple(_latest([*lines, *_identifiers(messages, redact)])))


def _labelled(messages: Sequence[Message]) -> Iterator[tuple[Message, Label]]:
    """Yield the messages of people and the agent with their label."""
    tainted = Label.AGENT
    for message in messages:
        match message:
            case ToolResult():
                tainted = mix([tainted, message.label])
            case UserMessage():
                tainted = mix([tainted, message.label])
                yield message, message.label
            case AssistantMessage():
                yield message, mix([tainted, label_of(message)])


def _passages(messages: Sequence[Message]) -> Iterator[tuple[str, Label]]:
    for message, label in _labelled(messages):
        if message.text.strip() in _SILENCE:
            continue
        for sentence in _sentences(message.text[-_MAX_TEXT_CHARS:]):
            yield sentence, label


def _sentences(text: str) -> Iterator[str]:
    prose = _FENCED.sub("\n", text)
    for piece in _SENTENCE_END.split(prose if prose.strip() else text):
        sentence = " ".join(_BULLET.sub("", piece).split())
        if sentence:
            yield _cut(sentence)


def _cut(sentence: str) -> str:
    if len(sentence) <= MAX_LINE_CHARS:
        return sentence
    at = sentence.rfind(" ", MAX_LINE_CHARS // 2, MAX_LINE_CHARS)
    return sentence[: at if at > 0 else MAX_LINE_CHARS]


def _topic_of(sentence: str) -> Topic | None:
    if len(sentence) < _MIN_CHARS and sentence.isascii():
        return None
    return next((topic for topic, cue in _CUES if cue.search(sentence)), None)


def _identifiers(messages: Sequence[Message], redact: Redact) -> Iterator[NoteLine]:
    texts = [(authored_text(message), label) for message, label in _labelled(messages)]
    for name in find_identifiers([text for text, _ in texts], redact=redact):
        labels = [label for text, label in texts if name in text]
        if labels:
            yield NoteLine(Topic.IDENTIFIERS, " ".join(name.split()), mix(labels))


def _latest(lines: Iterable[NoteLine]) -> Iterator[NoteLine]:
    """Yield the latest lines of each topic in order; of repeated lines the last one."""
    distinct: dict[tuple[Topic, str], NoteLine] = {}
    for line in lines:
        key = line.topic, line.text.casefold()
        distinct.pop(key, None)
        distinct[key] = line
    for topic in Topic:
        of_topic = [line for line in distinct.values() if line.topic is topic]
        yield from of_topic[-_CAPS[topic] :]
