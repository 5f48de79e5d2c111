"""A graded set of our own: what somebody's notes of five years hold, and what they would ask about them.

Every fact is one line in one note. Next to it there are notes with lines that read almost the same and answer another
question, and a great many lines about ordinary days.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = (
    "exact",
    "paraphrase",
    "name",
    "date",
    "number",
    "negation",
    "language",
    "old",
    "contradicted",
)


@dataclass(frozen=True, slots=True)
class Fact:
    """A line that answers a question, lines that nearly do, and the note it stands in where that matters."""

    kind: str
    line: str
    question: str
    decoys: tuple[str, ...] = ()
    note: str | None = None


FACTS: tuple[Fact, ...] = (
    Fact(
        "exact",
        "The heating engineer left the boiler error code E119-FF in the log.",
        "E119-FF",
        ("The heating engineer left the boiler error code E191-FF in the log.",),
    ),
    Fact(
        "exact",
        "Parcel from the bookshop, tracking number RX48213377DE.",
        "where is parcel RX48213377DE",
        ("Parcel from the bookshop, tracking number RX48213737DE.",),
    ),
    Fact(
        "exact",
        "The staging database moved to host db-07.acme.internal.",
        "db-07.acme.internal",
        ("The staging database moved to host db-70.acme.internal.",),
    ),
    Fact(
        "exact",
        "Fixed the flaky import by setting PYTHONHASHSEED before the run.",
        "what did I do with PYTHONHASHSEED?",
        ("Fixed the flaky export by setting PYTHONOPTIMIZE before the run.",),
    ),
    Fact(
        "exact",
        'She kept saying "measure twice, cut once" while we built the shelf.',
        'who said "measure twice, cut once"',
        ("He kept saying we should measure the shelf again before we cut anything.",),
    ),
    Fact(
        "exact",
        "Server room door code changed to 5590#2.",
        "5590#2",
        ("Server room door code changed to 5950#2.",),
    ),
    Fact(
        "exact",
        "Invoice INV-2024-0917 is still open with the printer.",
        "is INV-2024-0917 paid",
        ("Invoice INV-2024-0971 is still open with the printer.",),
    ),
    Fact(
        "exact",
        "retry_backoff_ms has to stay at 750 or the gateway floods.",
        "retry_backoff_ms",
        ("retry_limit has to stay at 7 or the gateway floods.",),
    ),
    Fact(
        "paraphrase",
        "Our cat Minka had to have two teeth pulled at the vet.",
        "which dental surgery did our pet need?",
        ("Our cat Tiger had to have his claws cut at the vet.",),
    ),
    Fact(
        "paraphrase",
        "Grandma is allergic to penicillin, the hospital must know.",
        "which medicine must grandmother never be given?",
        ("Grandpa is allergic to pollen, the garden must wait.",),
    ),
    Fact(
        "paraphrase",
        "I sold the old Volvo to a student from Leipzig.",
        "who bought my car?",
        ("I sold the old lawnmower to a neighbour from Halle.",),
    ),
    Fact(
        "paraphrase",
        "The landlord agreed to lower the rent because of the mould in the bathroom.",
        "why do we pay less for the apartment?",
        ("The landlord agreed to repair the lift because of the noise in the hall.",),
    ),
    Fact(
        "paraphrase",
        "Decided to learn the cello instead of the guitar this winter.",
        "which musical instrument am I taking up?",
        ("Decided to repair the bicycle instead of the scooter this winter.",),
    ),
    Fact(
        "paraphrase",
        "Flight home was cancelled, so we took the night train from Vienna.",
        "how did we travel back when the plane did not leave?",
        ("Ferry home was delayed, so we took a hotel in Calais.",),
    ),
    Fact(
        "paraphrase",
        "The dentist wants to see me again in half a year.",
        "when is my next teeth check-up?",
        ("The tailor wants to see me again for the jacket.",),
    ),
    Fact(
        "paraphrase",
        "My sister is expecting a baby in the summer.",
        "who in the family is pregnant?",
        ("My brother is expecting a visitor in the autumn.",),
    ),
    # The six that follow were written after all tuning, to see whether it holds for questions nobody looked at.
    Fact(
        "paraphrase",
        "The storm tore three tiles off the roof.",
        "what damage did the bad weather do to the house?",
        ("The storm blew the bin across the yard.",),
    ),
    Fact(
        "paraphrase",
        "Grandfather taught himself Portuguese at eighty.",
        "which foreign language did an old relative learn?",
        ("Grandfather taught himself to whittle at seventy.",),
    ),
    Fact(
        "paraphrase",
        "The vegetarian restaurant by the canal closed for good.",
        "which place to eat has shut down?",
        ("The hardware shop by the canal opened again.",),
    ),
    Fact(
        "paraphrase",
        "Emil broke his wrist while skating.",
        "who got injured doing sports?",
        ("Emil lost his scarf while shopping.",),
    ),
    Fact(
        "paraphrase",
        "We adopted a greyhound from the animal shelter.",
        "where does our dog come from?",
        ("We bought a bookcase from the second-hand shop.",),
    ),
    Fact(
        "paraphrase",
        "The bank declined the mortgage because our income is irregular.",
        "why did we not get the loan for the house?",
        ("The club declined the request because our hall is too small.",),
    ),
    Fact(
        "name",
        "Dr. Okonkwo will look after the knee from now on.",
        "which doctor treats my knee?",
        ("Dr. Lindqvist will look after the eyes from now on.",),
    ),
    Fact(
        "name",
        "Priya Raman recommended the accountant in the Brunnenstrasse.",
        "what did Priya Raman recommend?",
        ("Pia Roman recommended the bakery in the Brunnenstrasse.",),
    ),
    Fact(
        "name",
        "Tobias Falk from the choir lent me his projector.",
        "what did I borrow from Tobias Falk?",
        ("Tobias Falke from the office lent me his ladder.",),
    ),
    Fact(
        "name",
        "The plumber is called Esteban Ruiz and comes on Saturdays too.",
        "name of the plumber",
        ("The painter is called Esteban Reyes and comes on Sundays too.",),
    ),
    Fact(
        "name",
        "Yuki Tanabe runs the pottery class behind the station.",
        "who runs the pottery class?",
        ("Yuko Tanaka runs the swimming class behind the station.",),
    ),
    Fact(
        "name",
        "Signed the contract with Halvorsen & Dale for the roof.",
        "what was agreed with Halvorsen & Dale?",
        ("Signed the contract with Haldane & Vale for the fence.",),
    ),
    Fact(
        "name",
        "Aunt Rosalind collects fountain pens from the thirties.",
        "what does Aunt Rosalind collect?",
        ("Uncle Roland collects stamps from the thirties.",),
    ),
    Fact(
        "date",
        "Handed in the tax return at the counter.",
        "what did I hand in on 14 March 2024?",
        (),
        "memory/2024-03-14.md",
    ),
    Fact(
        "date",
        "The passport expires on 3 September 2029.",
        "what expires on 2029-09-03 September 3?",
        ("The library card expires on 9 March 2027.",),
    ),
    Fact(
        "date",
        "Planted the apple tree by the wall.",
        "what was planted on 2023-10-21?",
        (),
        "memory/2023-10-21.md",
    ),
    Fact(
        "date",
        "Parents' evening at school is on 12 November 2025 at seven.",
        "when is the parents' evening at school?",
        ("Parents' visit at grandma's is on 21 October 2025 at noon.",),
    ),
    Fact(
        "date", "The cellar was flooded up to the second step.", "cellar flooded May 2022", (), "memory/2022-05-30.md"
    ),
    Fact(
        "date",
        "Wedding anniversary is the 17th of June, book the table early.",
        "when is our wedding anniversary?",
        ("Name day is the 7th of July, buy flowers early.",),
    ),
    Fact(
        "date",
        "Had the winter tyres put on at the garage.",
        "what was done at the garage on November 4, 2024?",
        (),
        "memory/2024-11-04.md",
    ),
    Fact(
        "number",
        "The kitchen window measures 118 by 94 centimetres.",
        "how large is the kitchen window?",
        ("The bedroom window measures 81 by 49 centimetres.",),
    ),
    Fact(
        "number",
        "Electricity meter read 48213 kilowatt hours.",
        "meter reading 48213",
        ("Electricity meter read 42813 kilowatt hours.",),
    ),
    Fact(
        "number",
        "Paid 1,340 euros for the new washing machine.",
        "what did the washing machine cost?",
        ("Paid 430 euros for the new vacuum cleaner.",),
    ),
    Fact(
        "number",
        "Shoe size of Emil is 37 now.",
        "Emil's shoe size",
        ("Shoe size of Ella is 33 now.",),
    ),
    Fact(
        "number",
        "The sourdough wants 72 percent water and 2 percent salt.",
        "how much water goes into the sourdough?",
        ("The pizza dough wants 60 percent water and 3 percent oil.",),
    ),
    Fact(
        "number",
        "The recycling bin is emptied every 14 days, on Thursdays.",
        "how often is the recycling bin emptied?",
        ("The organic bin is emptied every 7 days, on Mondays.",),
    ),
    Fact(
        "number",
        "Locker 219 at the swimming pool is ours until June.",
        "which locker do we have at the swimming pool?",
        ("Locker 192 at the gym is ours until July.",),
    ),
    Fact(
        "negation",
        "Never water the orchid with tap water, it did not survive the last time.",
        "what must not be used to water the orchid?",
        ("Water the fern with tap water every other day.",),
    ),
    Fact(
        "negation",
        "Lena does not eat walnuts, not even in cake.",
        "what doesn't Lena eat?",
        ("Lea does eat walnuts, even in cake.",),
    ),
    Fact(
        "negation",
        "We decided against the cruise to Norway.",
        "which trip did we decide not to make?",
        ("We decided on the hike through Slovenia.",),
    ),
    Fact(
        "negation",
        "The spare key is no longer with the neighbours upstairs.",
        "who no longer has the spare key?",
        ("The spare bulb is still with the neighbours downstairs.",),
    ),
    Fact(
        "negation",
        "Do not call the insurance before ten, nobody answers.",
        "when should I not call the insurance?",
        ("Do call the town hall before nine, somebody answers.",),
    ),
    Fact(
        "negation",
        "Without the second signature the bank refuses the transfer.",
        "why was the transfer not accepted by the bank?",
        ("With the second form the post office accepts the parcel.",),
    ),
    Fact(
        "negation",
        "Marco can't come to the reunion, he works that weekend.",
        "who cannot come to the reunion?",
        ("Marta can come to the rehearsal, she is free that weekend.",),
    ),
    Fact(
        "language",
        "Omas Katze heißt Mimi und frisst nur Lachs.",
        "Wie heißt Omas Katze?",
        ("Opas Hund heißt Rex und frisst nur Huhn.",),
    ),
    Fact(
        "language",
        "Der Schornsteinfeger kommt am ersten Montag im März.",
        "Wann kommt der Schornsteinfeger?",
        ("Der Gärtner kommt am letzten Freitag im Mai.",),
    ),
    Fact(
        "language",
        "Le code du portail de la maison de campagne est 7730.",
        "Quel est le code du portail de la maison de campagne ?",
        ("Le code du garage de l'appartement est 3770.",),
    ),
    Fact(
        "language",
        "La abuela guarda las fotos de la boda en el armario azul.",
        "¿Dónde guarda la abuela las fotos de la boda?",
        ("El abuelo guarda las llaves del coche en el cajón gris.",),
    ),
    Fact(
        "language",
        "東京の友達の佐藤さんは来年四月に結婚する予定です。",
        "佐藤さんはいつ結婚しますか",
        ("大阪の友達の加藤さんは来年六月に引っ越す予定です。",),
    ),
    Fact(
        "language",
        "妈妈的生日是农历八月初三，记得订蛋糕。",
        "妈妈的生日是什么时候",
        ("爸爸的体检是阳历六月十日，记得带病历。",),
    ),
    Fact(
        "language",
        "우리 집 와이파이 비밀번호는 봄바람2024이다.",
        "와이파이 비밀번호가 뭐지",
        ("우리 집 현관 비밀번호는 가을하늘이다.",),
    ),
    Fact(
        "language",
        "Ключ от дачи лежит под третьим горшком справа.",
        "Где лежит ключ от дачи?",
        ("Ключ от машины висит на втором крючке слева.",),
    ),
    Fact(
        "old",
        "The alarm can be reset with service code 91-KLO-7.",
        "service code to reset the alarm",
        ("The alarm was tested by the service company.",),
        "memory/2021-02-09.md",
    ),
    Fact(
        "old",
        "Paint in the hallway is Farrow 228 Cornforth White.",
        "which paint is in the hallway?",
        ("Paint in the nursery is a mild yellow.",),
        "memory/2021-06-18.md",
    ),
    Fact(
        "old",
        "The warranty for the heat pump is kept in the green binder.",
        "where is the heat pump's warranty?",
        ("The manual for the dishwasher is kept in the red binder.",),
        "memory/2021-09-27.md",
    ),
    Fact(
        "old",
        "We buried the time capsule under the birch behind the shed.",
        "where did we bury the time capsule?",
        ("We buried the hamster under the hedge beside the gate.",),
        "memory/2021-08-15.md",
    ),
    Fact(
        "old",
        "Fuse 12 is the one for the garden pond pump.",
        "which fuse is for the pond pump?",
        ("Fuse 21 is the one for the attic lights.",),
        "memory/2021-04-22.md",
    ),
    Fact(
        "old",
        "Mother's ring was resized by the goldsmith Ferrante.",
        "which goldsmith resized mother's ring?",
        ("Father's watch was cleaned by the jeweller Ferri.",),
        "memory/2021-11-03.md",
    ),
    Fact(
        "old",
        "The first violin teacher was Ms Abernathy in the Linden school.",
        "who was the first violin teacher?",
        ("The first swimming coach was Mr Abbott in the river baths.",),
        "memory/2021-01-28.md",
    ),
    Fact(
        "contradicted",
        "The book club now meets on Wednesdays, no longer on Tuesdays.",
        "on which day does the book club meet?",
        ("The book club meets on Tuesdays at the library.",),
        "memory/2025-08-20.md",
    ),
    Fact(
        "contradicted",
        "Correction: the cabin's wifi password is now larch-4410.",
        "wifi password of the cabin",
        ("The cabin's wifi password is spruce-2081.",),
        "memory/2025-07-02.md",
    ),
    Fact(
        "contradicted",
        "Nora moved, her new address is Kastanienallee 61.",
        "what is Nora's address?",
        ("Nora's address is Ahornweg 9.",),
        "memory/2025-05-11.md",
    ),
    Fact(
        "contradicted",
        "The deployment window moved to Thursday nights.",
        "when is the deployment window?",
        ("The deployment window is on Monday nights.",),
        "memory/2025-06-25.md",
    ),
    Fact(
        "contradicted",
        "Changed my mind: the kitchen tiles will be green after all.",
        "which colour will the kitchen tiles be?",
        ("The kitchen tiles will be white.",),
        "memory/2025-09-09.md",
    ),
    Fact(
        "contradicted",
        "The emergency contact for school is Uncle Henrik from now on.",
        "who is the emergency contact for school?",
        ("The emergency contact for school is Mrs Petrov.",),
        "memory/2025-10-01.md",
    ),
    Fact(
        "contradicted",
        "The insulin dose was lowered to 14 units in the evening.",
        "how many units of insulin in the evening?",
        ("The insulin dose is 18 units in the evening.",),
        "memory/2025-04-30.md",
    ),
)
