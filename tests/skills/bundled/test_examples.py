"""The examples in the instructions run as they are written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.skills.bundled.scripts import BUNDLED, UV, Workspace, script, shell_blocks, stand_in
from tests.skills.bundled.test_pdf import make_pdf

pytestmark = pytest.mark.slow

SALES = "date,region,product,amount\n2030-01-02,North,tea,120.50\n2030-01-03,South,tea,80\n2030-01-04,South,jam,100\n"
NEWS = """<rss version="2.0"><channel><title>News</title>
<item><title>Rain ends</title><link>https://example.org/rain</link><guid>1</guid></item></channel></rss>
"""


def run_examples(skill: str, workspace: Workspace) -> list[str]:
    return [workspace.shell(block) for block in shell_blocks(BUNDLED / skill)]


def test_todo(workspace: Workspace) -> None:
    (printed,) = run_examples("todo", workspace)
    assert "Call the dentist +health @phone" in printed
    assert workspace.read("done.txt").startswith("x ")
    assert workspace.read("todo.txt") == ""


def test_notes(workspace: Workspace) -> None:
    commands, heredoc = run_examples("notes", workspace)
    assert "Ordered bean seeds, 40 g." in commands
    assert "missing Compost" in commands
    assert "trip-to-bern.md" in heredoc
    assert "- Ask for a quiet room" in workspace.read("notes/trip-to-bern.md")


def test_calendar(workspace: Workspace) -> None:
    agenda, removal = run_examples("calendar", workspace)
    assert "Tue 2030-05-14  15:00-15:45  Dentist  @ Main street 3" in agenda
    assert "Mon 2030-05-13  09:30-10:00  Team meeting" in agenda
    assert "20300514-dentist@retinue" in removal
    assert "Dentist" not in workspace.read("calendar.ics")


def test_expenses(workspace: Workspace) -> None:
    (printed,) = run_examples("expenses", workspace)
    assert "half-fare card" in printed
    assert "376.20" in printed
    assert workspace.read("expenses.csv").count("\n") == 2


def test_csv_report(workspace: Workspace) -> None:
    workspace.write("sales.csv", SALES)
    (printed,) = run_examples("csv-report", workspace)
    assert "| South | 2 | 180 | 90 |" in printed


def test_feeds(workspace: Workspace) -> None:
    workspace.write("news.xml", NEWS)
    workspace.write("feeds.txt", "news.xml  # a file does as well\n")
    first, later = run_examples("feeds", workspace)
    assert "Rain ends" in first
    assert later.count("Rain ends") == 1
    assert later.endswith("Nothing new.\n")


def test_unit_time(workspace: Workspace) -> None:
    (printed,) = run_examples("unit-time", workspace)
    assert "5 mi = 8.04672 km" in printed
    assert "Thursday 2030-03-14T23:00+09:00  Asia/Tokyo" in printed


def test_backup(workspace: Workspace) -> None:
    workspace.write("MEMORY.md", "likes tea\n")
    script("backup", "backup.py", workspace).run("create", "--name", "workspace", "--now", "2030-05-14T15:00:00")
    run_examples("backup", workspace)
    assert workspace.read("restored/MEMORY.md") == "likes tea\n"


def test_skill_creator(workspace: Workspace) -> None:
    (printed,) = run_examples("skill-creator", workspace)
    assert "error" not in printed
    assert (workspace.folder / "skills/meal-plan/scripts/meal_plan.py").is_file()


def test_contacts(workspace: Workspace) -> None:
    (printed,) = run_examples("contacts", workspace)
    assert "2030-12-10  Ada Lovelace  215" in printed
    assert workspace.read("contacts.vcf") == ""


def test_bookmarks(workspace: Workspace) -> None:
    (printed,) = run_examples("bookmarks", workspace)
    assert "All about tea  https://example.org/tea  #food  brewing times" in printed
    assert "All about tea" in workspace.read("bookmarks.html")


def test_reminders(workspace: Workspace) -> None:
    (printed,) = run_examples("reminders", workspace)
    assert "Tue 2030-05-14 19:30  Water the plants  (every week)" in printed


def test_journal(workspace: Workspace) -> None:
    (printed,) = run_examples("journal", workspace)
    assert printed.count("Walked along the river.") == 4
    assert "mood by month: {'2030-05': 4.0}" in printed


def test_meeting_notes(workspace: Workspace) -> None:
    (printed,) = run_examples("meeting-notes", workspace)
    assert "Ada  sign the contract  2030-05-20  OVERDUE" in printed
    assert "the offer of Smith is accepted" in printed


def test_travel_plan(workspace: Workspace) -> None:
    (printed,) = run_examples("travel-plan", workspace)
    assert "2. 09:40 Europe/Zurich - 2030-05-14 14:35 America/New_York  flight: LX 64 to Miami" in printed
    assert "Nothing." in printed
    assert "- passport" in printed


def test_translation_memory(workspace: Workspace) -> None:
    (printed,) = run_examples("translation-memory", workspace)
    assert "Bitte starten Sie das Gerät neu." in printed
    assert "Nothing." in printed


def test_web_research(workspace: Workspace) -> None:
    (printed,) = run_examples("web-research", workspace)
    assert '    "brewed at 80 degrees"' in printed
    assert "Nothing." in printed
    assert "[1] All about tea. https://example.org/tea (read " in printed


def test_pdf(tmp_path: Path) -> None:
    workspace = with_uv(tmp_path)
    workspace.write("report.pdf", make_pdf("One", "Two", "Three", "Four"))
    (printed,) = run_examples("pdf", workspace)
    assert printed.startswith("--- page 1 ---\nOne")
    assert "file: all.pdf\npages: 6" in printed


def test_images(tmp_path: Path) -> None:
    workspace = with_uv(tmp_path)
    Image.new("RGB", (1_000, 500), "red").save(workspace.folder / "photo.jpg")
    (printed,) = run_examples("images", workspace)
    assert "file: small.webp\nwidth: 800\nheight: 400" in printed
    assert "file: overview.png\npictures: 2" in printed


def test_long_summary(workspace: Workspace) -> None:
    (printed,) = run_examples("long-summary", workspace)
    assert "part 2: lines 5-7, missing" in printed
    assert printed.endswith("[part 2, lines 5-7]\nTea needs rain.\n")


def test_sqlite(workspace: Workspace) -> None:
    (printed,) = run_examples("sqlite", workspace)
    assert "sales (table, 2 rows)" in printed
    assert "day,amount\n2030-05-14,23.8\n" in printed


def test_log_reader(workspace: Workspace) -> None:
    (printed,) = run_examples("log-reader", workspace)
    assert "2  error     no answer from <address> after <n> ms" in printed
    assert "  at line 3" in printed


def test_system_monitor(workspace: Workspace) -> None:
    first, *_ = shell_blocks(BUNDLED / "system-monitor")
    printed = workspace.shell("\n".join(line for line in first.splitlines() if "--problems" not in line))
    assert '"disks": [' in printed


def with_uv(folder: Path) -> Workspace:
    """A workspace with a stand-in for uv."""
    stand_in(folder / "bin", "uv", UV)
    (folder / "workspace").mkdir()
    return Workspace(folder / "workspace", {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"})


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_tmux(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, {"TMUX_TMPDIR": str(tmp_path), "TERM": "xterm"})
    (printed,) = run_examples("tmux", workspace)
    assert "\n42\n" in printed
    assert printed.endswith("stopped\n")
