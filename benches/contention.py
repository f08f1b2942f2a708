#!/usr/bin/env python3
"""The plot of contention, drawn from docs/contention.json.

    benches/contention.py            prints the picture
    benches/contention.py --write    takes figures from stdin, and writes them and the picture into docs

`make bench ARGS="contention --write"` calls the second.
"""
import datetime
import json
import pathlib
import sys

import svg

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
CROWDS = (32, 256)
NAMES, RATE, WAIT, COMMANDS, WIDTH = 150, 250, 240, 60, 860
LABELS = {"LOCK.ACQUIRE WAIT": "Mortise"}


def panel(rows, clients, top):
    """A row a way to wait: how often a client gets in, how long it waits, what it sends."""
    rates, waits, commands = ([row[figure] for row in rows] for figure in ("rate", "p99", "commands"))
    ours, first = [row["ours"] for row in rows], top + 40
    left, middle = NAMES, NAMES + RATE + 60
    right = middle + WAIT + COMMANDS
    yield svg.text(0, top + 12, f"{clients} clients want one lock, hold it for 1 ms and think for 1 ms", size=13, weight="bold")
    yield svg.text(left, top + 32, "locks taken a second", faint=True)
    yield svg.text(middle, top + 32, "p99 of the wait, ms", faint=True)
    yield svg.text(right + 40, top + 32, "commands sent for one", "end", faint=True)
    yield from svg.row_labels(left - 8, first, [LABELS.get(row["rival"], row["rival"]) for row in rows], ours)
    yield from svg.column(left, first, rates, svg.linear(rates, RATE), ours)
    yield from svg.column(middle, first, waits, svg.linear(waits, WAIT), ours)
    for number, (count, own) in enumerate(zip(commands, ours)):
        yield svg.text(right + 40, first + number * svg.ROW + 11, svg.short(count), "end", weight="bold" if own else "normal")


def draw(told):
    parts, top = [], 10
    for clients in CROWDS:
        rows = [row for row in told["rows"] if row["clients"] == clients]
        parts += panel(rows, clients, top)
        top += 40 + svg.ROW * len(rows) + 24
    for line in (told["head"][0], " · ".join(told["head"][1:])):
        parts.append(svg.text(0, top, line, size=10, faint=True))
        top += 14
    return svg.picture(WIDTH, top, parts, "Contention for one lock: Mortise beside polling, pub/sub and lists")


def lines(told):
    """JSON with a line for each row."""
    head, rows = json.dumps(told["head"], ensure_ascii=False), ",\n".join(f"  {json.dumps(row)}" for row in told["rows"])
    return f'{{\n "head": {head},\n "rows": [\n{rows}\n ]\n}}\n'


def main():
    figures = DOCS / "contention.json"
    if "--write" in sys.argv:
        told = json.load(sys.stdin)
        told["head"].append(f"{datetime.date.today()}")
        figures.write_text(lines(told))
        (DOCS / "contention.svg").write_text(draw(told))
    else:
        print(draw(json.loads(figures.read_text())), end="")


main()
