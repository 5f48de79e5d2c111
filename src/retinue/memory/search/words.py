"""Words of queries and notes: stems, stop words, and scripts that are written without spaces."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping
from threading import Lock

from retinue.memory.store.schema import TOKENIZER

MAX_STEMS = 200_000


class Stemmer:
    """Returns and caches the stems of words; thread-safe.

    It uses the tokenizer of the full-text index, so that its stems are always those in the index.
    """

    def __init__(self, most_kept: int = MAX_STEMS) -> None:
        self._lock = Lock()
        self._most_kept = most_kept
        self._known: dict[str, str] = {}
        self._base = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._base.execute(f"CREATE VIRTUAL TABLE words USING fts5(word, tokenize='{TOKENIZER}', detail=full)")
        self._base.execute("CREATE VIRTUAL TABLE seen USING fts5vocab(words, instance)")

    def learn(self, words: Collection[str]) -> Mapping[str, str]:
        """Return a mapping from words to stems that contains at least the given words."""
        known = self._known
        if all(word in known for word in words):
            return known
        with self._lock:
            if len(self._known) + len(words) > self._most_kept:
                # A new dictionary, because other threads may still be reading the old one.
                self._known = {}
            known = self._known
            self._look_up([word for word in dict.fromkeys(words) if word not in known])
        return known

    def stem(self, word: str) -> str:
        return self.learn((word,))[word]

    def close(self) -> None:
        self._base.close()

    def _look_up(self, words: list[str]) -> None:
        self._base.execute("BEGIN")
        self._base.executemany("INSERT INTO words(rowid, word) VALUES (?, ?)", enumerate(words, start=1))
        for term, row in self._base.execute("SELECT term, doc FROM seen").fetchall():
            self._known.setdefault(words[row - 1], term)
        self._base.execute("ROLLBACK")
        for word in words:
            self._known.setdefault(word, word)


_SPACELESS = (
    r"\u0e00-\u0eff"  # Thai, Lao
    r"\u1000-\u109f"  # Burmese
    r"\u1780-\u17ff"  # Khmer
    r"\u3040-\u30ff"  # kana
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # ideographs
    r"\uac00-\ud7af"  # Hangul
    r"\U00020000-\U0003ffff"  # rare ideographs
)
_CHARACTER = re.compile(f"[{_SPACELESS}]")
_RUN = re.compile(f"[{_SPACELESS}]+")


def count_spaceless(text: str) -> int:
    """Return the number of characters of scripts without spaces in a text."""
    return 0 if text.isascii() else len(_CHARACTER.findall(text))


def spaceless_runs(text: str) -> list[str]:
    """Return the runs of characters of scripts without spaces in a text."""
    return [] if text.isascii() else _RUN.findall(text)


def character_pairs(text: str) -> list[str]:
    """Return the overlapping character pairs of these runs; a run of one character is returned as it is."""
    pairs: list[str] = []
    for run in spaceless_runs(text):
        pairs.extend(run[at : at + 2] for at in range(max(1, len(run) - 1)))
    return pairs


def without_spaceless(text: str) -> str:
    """Return the text with these runs replaced by spaces, so that the words next to them are separate."""
    return text if text.isascii() else _RUN.sub(" ", text)


_ENGLISH = """
a about above after again against all also am an and any are as at be because been before being below between both but
by can cannot could did do does doing don down during each else ever few for from further get got had has have having he
her here hers herself him himself his how i if in into is it its itself just let like ll me might mine more most much
must my myself no nor not now of off on once only or other our ours ourselves out over own please re s same shall she
should so some such t than that the their theirs them themselves then there these they this those through to too under
until up us ve very was we were what whats when where which while who whom whose why will with would you your yours
yourself yourselves tell know remember remind
"""
_GERMAN = """
aber als am an auch auf aus bei bin bis bist da damit dann das dass dein deine dem den der des dich die dies diese
dieser dieses dir doch du durch ein eine einem einen einer eines er es euch euer für gegen habe haben hat hatte hatten
ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ist ja jede jeder jedes kann können man mein meine meinem meinen
meiner mich mir mit nach nicht noch nun nur ob oder ohne sehr sein seine seinem seinen seiner sich sie sind so über um
und uns unser unsere unter vom von vor wann war waren warum was wegen welche welcher welches wem wen wenn wer werden
wie wieder wir wird wirst wo wurde wurden zu zum zur zwischen
"""
_FRENCH = """
ai au aux avec c ce ces cet cette comme comment d dans de des donc du elle elles en es est et été eu il ils j je l la
le les leur leurs lui m ma mais me mes moi mon n ne nos notre nous on ont ou où par pas plus pour pourquoi qu quand que
quel quelle quelles quels qui quoi s sa sans se ses si son sont sur t ta te tes toi ton tu un une vos votre vous y à
"""
_SPANISH = """
al algo como cómo con cual cuál cuando cuándo de del desde donde dónde e el ella ellas ellos en era es esa ese eso esta
está este esto fue ha había han hasta hay la las le les lo los me mi mis muy más nada ni no nos nosotros o os para pero
por porque qué que quien quién se ser si sin sobre son su sus también te tiene tu tus un una uno unos y ya yo
"""
_ITALIAN = """
ai al alla alle allo anche che chi ci come con cosa da dal dalla dei del della delle dello di dove e ed era gli ha hanno
ho i il in io la le lei lo loro lui ma mi mia mio ne nei nel nella non o per perché più quale quali quando quanto questa
questo se sei si sia sono su sua sul sulla suo ti tra tu tuo un una uno
"""
_PORTUGUESE = """
ao aos as até com como da das de dele dela do dos e é ela ele em entre era essa esse esta este eu foi há isso isto já
lhe mais mas me meu minha muito na nas nem no nos não o os ou para pela pelo por porque qual quando que quem se sem ser
seu sua são também te tem um uma você
"""
_DUTCH = """
aan als bij dan dat de deze die dit door een en er had heb heeft hem het hij hoe hun ik in is je kan maar me met mijn
naar niet nog of om onder ook op over te tot uit van voor waar waarom wanneer was wat we wel werd wie wij worden wordt
ze zich zij zijn zo zou
"""
STOP_WORDS: frozenset[str] = frozenset(
    " ".join((_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _ITALIAN, _PORTUGUESE, _DUTCH)).split()
) - frozenset({"more", "son", "hat", "fur", "die", "among", "war", "bin", "pour", "plus", "men", "pan", "tot", "ten"})
"""Stop words of the most common languages, without those that are nouns in another of these languages."""


_ASKING = """
across aspect aspects ask asked asking bring brought chat chats comprehensive conversation conversations detail
detailed details different discuss discussed discussing discussion discussions exactly explain explained far give
given help item items kind list mention mentioned mentioning mentions order overview provide provided question
questions recommend recommended recommendation said say session sessions suggest suggested summarise summarised
summarize summarized summary talk talked talking thing things throughout type various walk way ways
"""
ASKING_WORDS: frozenset[str] = frozenset(_ASKING.split())
"""Words with which a question describes what to do with the answer, rather than what it is about."""
