"""`retinue demo`: a recorded minute with a capable model. Nothing is called, read or changed."""

from __future__ import annotations

import sys
import time

import click
from msgspec import Struct

from retinue.cli.common import Command, Invocation, pass_invocation
from retinue.cli.terminal import echo, is_terminal

HEAD = "RECORDING: what Retinue does with a capable model. Nothing below runs; no file of yours is read or changed."
TAIL = "END OF THE RECORDING. To do this yourself, add a model: retinue setup"
MARGIN = "▌ "


class Moment(Struct, frozen=True):
    """One line of the recording: who speaks, what, and how long it stays before the next."""

    who: str
    text: str
    seconds: float


RECORDING: tuple[Moment, ...] = (
    Moment("you", "I land in Lisbon on Friday at 9. What do I have to finish before?", 3.0),
    Moment("recall", 'memory/2026-05-02.md: "Trip to Lisbon, 15 to 18 May; the report for Ana is due before it."', 2.5),
    Moment("tool", "read calendar.ics · 0.1 s", 1.2),
    Moment("tool", 'grep "Ana" projects/ · 3 hits · 0.1 s', 1.2),
    Moment(
        "agent", "Two things. The report for Ana is due on Thursday; the draft in projects/ana/report.md lacks the", 2.0
    ),
    Moment("agent", "figures for April. And you have not checked in yet: that opens on Thursday at 9.", 3.0),
    Moment("you", "Get the April figures from the CSV and put them in. Have someone check the sums.", 3.0),
    Moment("tool", "read projects/ana/april.csv · 214 lines · 0.1 s", 1.2),
    Moment("sub-agent", 'started: "Check the sums of april.csv independently and report differences."', 2.0),
    Moment("tool", "edit projects/ana/report.md", 0.8),
    Moment("diff", "- | April | to come |", 0.8),
    Moment("diff", "+ | April | 18,420 € |", 1.5),
    Moment("sub-agent", "done in 11 s: sum 18,420.00 €; one row (17 April) appears twice in the CSV.", 2.5),
    Moment(
        "agent",
        "The figures are in. The check found a duplicate: the row of 17 April appears twice, so the sum may be",
        2.0,
    ),
    Moment("agent", "180 € too high. I have not changed it. Shall I ask Ana, or do you know?", 3.0),
    Moment("you", "It is a duplicate. Fix it, commit, and remind me of the check-in.", 3.0),
    Moment("tool", "edit projects/ana/report.md · 18,420 € becomes 18,240 €", 1.5),
    Moment("approval", "exec: git commit -am 'Report: figures for April'", 1.0),
    Moment("approval", "This changes the repository. [y] once  [a] always  [n] no", 3.0),
    Moment("you", "y", 1.5),
    Moment("tool", "exec git commit · 1 file changed · 0.2 s", 1.2),
    Moment("tool", 'cron add: Thursday 09:00, "Remind: check in for Lisbon"', 1.2),
    Moment("memory", 'wrote memory/2026-05-12.md: "April total for Ana: 18,240 €; 17 April was listed twice."', 2.0),
    Moment(
        "agent",
        "Done: corrected, committed, and you get a reminder on Thursday at 9. I noted the duplicate, so the",
        2.0,
    ),
    Moment("agent", "question does not come up again next month.", 2.5),
)


@click.command(cls=Command)
@click.option("--speed", type=click.FloatRange(0.1, 100), default=1.0, help="How many times as fast as it was.")
@pass_invocation
def demo(invocation: Invocation, speed: float) -> None:
    """It shows tools, memory, an approval and a sub-agent. Without a terminal it is printed at once."""
    if invocation.as_json:
        moments = [{"who": each.who, "text": each.text, "seconds": each.seconds} for each in RECORDING]
        invocation.show({"recording": True, "moments": moments}, "")
        return
    plays = is_terminal(sys.stdout)
    echo(HEAD)
    before = ""
    for moment in RECORDING:
        who = moment.who if moment.who != before else ""
        before = moment.who
        echo(f"{MARGIN}{who:>9}  {moment.text}")
        if plays:
            time.sleep(moment.seconds / speed)
    echo(TAIL)
