"""What it costs to start the command line."""

from __future__ import annotations

from bench.measure import PYTHON, RETINUE, Sheet, process_cost


def run(*, full: bool) -> None:
    sheet = Sheet("startup")
    runs = 30 if full else 10
    base = process_cost([PYTHON, "-c", "import click"], runs=runs)
    sheet.row('python -c "import click"', base.cpu * 1000, "ms", f"{base.peak_mb:.0f} MB")
    for flag in ("--version", "--help"):
        cost = process_cost([RETINUE, flag], runs=runs)
        sheet.row(f"retinue {flag}", cost.cpu * 1000, "ms", f"{cost.peak_mb:.0f} MB, {cost.cpu / base.cpu:.2f} x click")
    sheet.save()
