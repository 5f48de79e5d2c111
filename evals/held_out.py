"""The other half of the graded set: questions that were written without asking any of them, and that nobody tunes for.

They are about the same notes. The answer is a line of `evals.graded`, often one that stands there only to mislead its
own questions. Change the search as you like, but do not look at which of these it misses while you do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and the beginning of the line that answers it."""

    kind: str
    question: str
    line: str


HELD_OUT: tuple[Asked, ...] = (
    Asked("exact", "boiler E191-FF", "The heating engineer left the boiler error code E191-FF"),
    Asked("exact", "RX48213737DE", "Parcel from the bookshop, tracking number RX48213737DE"),
    Asked("exact", "what runs on db-70.acme.internal?", "The staging database moved to host db-70.acme.internal"),
    Asked("exact", "do I still owe the printer INV-2024-0971?", "Invoice INV-2024-0971"),
    Asked("exact", "why did I set PYTHONOPTIMIZE?", "Fixed the flaky export by setting PYTHONOPTIMIZE"),
    Asked("exact", 'which door has "5950#2"', "Server room door code changed to 5950#2"),
    Asked("paraphrase", "what do doctors have to be told about grandma?", "Grandma is allergic to penicillin"),
    Asked("paraphrase", "why did the lender turn us down?", "The bank declined the mortgage"),
    Asked("paraphrase", "what went wrong for Emil on the ice?", "Emil broke his wrist while skating"),
    Asked(
        "paraphrase", "what was wrong with the flat when it became cheaper?", "The landlord agreed to lower the rent"
    ),
    Asked("paraphrase", "what became of the automobile I got rid of?", "I sold the old Volvo"),
    Asked("paraphrase", "what did the gale break?", "The storm tore three tiles off the roof"),
    Asked("paraphrase", "will there be a new child in the family?", "My sister is expecting a baby"),
    Asked("name", "whom do I see about my eyes?", "Dr. Lindqvist will look after the eyes"),
    Asked("name", "Esteban Ruiz", "The plumber is called Esteban Ruiz"),
    Asked("name", "what does Yuko Tanaka teach?", "Yuko Tanaka runs the swimming class"),
    Asked("name", "whose projector do I have?", "Tobias Falk from the choir lent me his projector"),
    Asked("name", "with which firm did we sign for the fence?", "Signed the contract with Haldane & Vale"),
    Asked("name", "Uncle Roland's collection", "Uncle Roland collects stamps"),
    Asked("date", "what did I do about my taxes on 14.03.2024?", "Handed in the tax return at the counter"),
    Asked("date", "which tree did I plant in October 2023?", "Planted the apple tree by the wall"),
    Asked(
        "date", "how high was the water in the cellar on 30 May 2022?", "The cellar was flooded up to the second step"
    ),
    Asked("date", "until when is my passport valid?", "The passport expires on 3 September 2029"),
    Asked("date", "when does the library card run out?", "The library card expires on 9 March 2027"),
    Asked("date", "what do we celebrate on 17 June?", "Wedding anniversary is the 17th of June"),
    Asked("number", "dimensions of the bedroom window", "The bedroom window measures 81 by 49"),
    Asked("number", "price of the vacuum cleaner", "Paid 430 euros for the new vacuum cleaner"),
    Asked("number", "which shoe size does Ella wear?", "Shoe size of Ella is 33"),
    Asked("number", "how much salt is in the sourdough?", "The sourdough wants 72 percent water"),
    Asked("number", "number of our locker at the gym", "Locker 192 at the gym"),
    Asked("number", "42813 kilowatt hours", "Electricity meter read 42813"),
    Asked("negation", "why did the last orchid die?", "Never water the orchid with tap water"),
    Asked("negation", "which nuts can't be in Lena's cake?", "Lena does not eat walnuts"),
    Asked("negation", "who isn't free for the reunion?", "Marco can't come to the reunion"),
    Asked("negation", "are we going on that cruise or not?", "We decided against the cruise to Norway"),
    Asked("negation", "at what time does nobody pick up at the insurance?", "Do not call the insurance before ten"),
    Asked("negation", "do the people upstairs still have our key?", "The spare key is no longer with the neighbours"),
    Asked("language", "Was frisst Opas Hund?", "Opas Hund heißt Rex"),
    Asked("language", "In welchem Monat kommt der Gärtner?", "Der Gärtner kommt am letzten Freitag"),
    Asked("language", "Quel est le code du garage ?", "Le code du garage de l'appartement"),
    Asked("language", "¿Dónde están las llaves del coche del abuelo?", "El abuelo guarda las llaves del coche"),
    Asked("language", "加藤さんはいつ引っ越しますか", "大阪の友達の加藤さん"),
    Asked("language", "爸爸什么时候体检", "爸爸的体检是阳历六月十日"),
    Asked("language", "현관 비밀번호", "우리 집 현관 비밀번호"),
    Asked("language", "На каком крючке ключ от машины?", "Ключ от машины висит"),
    Asked("old", "what is the shade of white in the hallway called?", "Paint in the hallway is Farrow 228"),
    Asked("old", "in which folder is the guarantee of the heat pump?", "The warranty for the heat pump"),
    Asked("old", "what lies under the birch?", "We buried the time capsule under the birch"),
    Asked("old", "what does fuse 12 switch?", "Fuse 12 is the one for the garden pond pump"),
    Asked("old", "who altered mother's ring?", "Mother's ring was resized by the goldsmith"),
    Asked("old", "at which school did Ms Abernathy teach?", "The first violin teacher was Ms Abernathy"),
    Asked("contradicted", "did the book club change its day?", "The book club now meets on Wednesdays"),
    Asked("contradicted", "current wifi password of the cabin", "Correction: the cabin's wifi password"),
    Asked("contradicted", "where does Nora live now?", "Nora moved, her new address"),
    Asked("contradicted", "on which nights may we deploy?", "The deployment window moved to Thursday"),
    Asked("contradicted", "final decision about the kitchen tiles", "Changed my mind: the kitchen tiles"),
    Asked("contradicted", "whom does the school call in an emergency?", "The emergency contact for school is Uncle"),
    Asked("contradicted", "insulin in the evening after the change", "The insulin dose was lowered"),
)
