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
# Narrow, and its text large, so that it can be read on a phone.
WIDTH, NAMES, RATE, WAIT, SIZE, ROW = 440, 118, 64, 60, 13, 21
# The milliseconds of a round: a wait that lasted as long was cut off by its end.
ROUND = 2000
LABELS = {"LOCK.ACQUIRE WAIT": "Mortise", "BLPOP token (no lease)": "BLPOP, no lease", "SET NX + BLPOP signal": "SET NX, BLPOP",
          "SET NX + pub/sub": "SET NX, pub/sub", "SET NX every 100 ms": "SET NX, 100 ms", "SET NX every 10 ms": "SET NX, 10 ms"}


def is_cut_off(wait):
    return wait >= ROUND * 0.99


def panel(rows, clients, top):
    """A row a way to wait: how often a client gets in, how long it waits, what it sends."""
    left, middle, right = NAMES, NAMES + RATE + 42, WIDTH - 24
    rates = svg.linear([row["rate"] for row in rows], RATE)
    waits = svg.linear([min(row["p99"], ROUND) for row in rows], WAIT)
    yield svg.text(0, top + 13, f"{clients} clients at one lock", size=SIZE + 2, weight="bold")
    for x, words, anchor in ((left, "locks a second", "start"), (middle, "p99 wait, ms", "start"), (right, "commands", "end")):
        yield svg.text(x, top + 36, words, anchor, size=SIZE, faint=True)
    for number, (row, rate, wait) in enumerate(zip(rows, rates, waits)):
        y, weight = top + 44 + number * ROW, "bold" if row["ours"] else "normal"
        cut_off = is_cut_off(row["p99"])
        yield svg.text(left - 8, y + 12, LABELS.get(row["rival"], row["rival"]), "end", SIZE, weight)
        yield svg.bar(left, y + 1, rate, row["ours"])
        yield svg.text(left + rate + 5, y + 12, f"{row['rate']:,.0f}", size=SIZE, weight=weight)
        yield svg.bar(middle, y + 1, wait, row["ours"])
        yield svg.text(middle + wait + 5, y + 12, f"> {ROUND:,}" if cut_off else f"{row['p99']:,.0f}", size=SIZE, weight=weight)
        yield svg.text(right, y + 12, svg.short(row["commands"]), "end", SIZE, weight)


def draw(told):
    parts, top = [], 10
    for clients in CROWDS:
        rows = [row for row in told["rows"] if row["clients"] == clients]
        parts += panel(rows, clients, top)
        top += 44 + ROW * len(rows) + 24
    rest = [word.split(", jemalloc")[0] for word in told["head"][1:]]
    for line in ("Each holds the lock for 1 ms and thinks for 1 ms; rounds of 2 s.", "> 2,000: the end of the round cut the wait off.",
                 "commands: those sent for one lock.", " · ".join(rest)):
        parts.append(svg.text(0, top, line, size=12, faint=True))
        top += 17
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
