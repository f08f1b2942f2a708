#!/usr/bin/env python3
"""The plot of the libraries, drawn from the tables in README.md beside it: acquisitions a second and the p99 of the wait, where 32
workers and where 1,000 tasks want one lock.

    benches/peers/plot.py            prints the picture

`make bench ARGS="peers --write"` writes the tables and the picture into docs.
"""
import pathlib
import sys

BENCHES = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(BENCHES))
import svg  # noqa: E402

# The beginnings of the tables' titles.
PANELS = ("32 workers, one lock", "1,000 tasks of one process, one lock")
# Narrow, and its text large, so that it can be read on a phone.
WIDTH, NAMES, BAR, SIZE = 440, 158, 68, 13
# The milliseconds of a round: a wait that lasted as long was cut off by its end.
ROUND, POWERS = 3000, 4
HEADS = (("locks a second", ""), ("p99 wait, ms", "(logarithmic)"))


def table(tables, title):
    """The rows below a title: name, acquisitions a second, p99 of the wait, and whether the library is ours."""
    lines = tables.split(f"**{title}")[1].splitlines()[1:]
    rows = []
    for line in lines[lines.index("") + 3:]:
        if not line.startswith("| "):
            break
        name, rate, _, waits = (cell.strip() for cell in line.split("|")[1:5])
        rate, p99 = (float(figure.replace(",", "")) for figure in (rate, waits.split(", ")[0]))
        rows.append((name.strip("*"), rate, p99, name.startswith("**")))
    return rows


def panel(title, rows, top):
    """A row for each library: how often it takes the lock, and how long it waits."""
    left, right, first = NAMES, NAMES + BAR + 58, top + 60
    names, rates, waits, ours = zip(*rows)
    yield svg.text(0, top + 13, title, size=SIZE + 2, weight="bold")
    for x, lines in zip((left, right), HEADS):
        for number, words in enumerate(lines):
            yield svg.text(x, top + 36 + number * 16, words, size=SIZE, faint=True)
    yield from svg.row_labels(left - 8, first, names, ours, SIZE)
    yield from svg.grid(right, first, len(rows), BAR, POWERS)
    yield from svg.column(left, first, map(svg.short, rates), svg.linear(rates, BAR), ours, SIZE)
    shown = (f"> {ROUND:,}" if wait >= ROUND * 0.99 else svg.short(wait) for wait in waits)
    lengths = svg.powers_of_ten([min(wait, ROUND) for wait in waits], BAR, POWERS)
    yield from svg.column(right, first, shown, lengths, ours, SIZE)


def draw(tables):
    parts, top = [], 10
    for title in filter(lambda title: f"**{title}" in tables, PANELS):
        rows = table(tables, title)
        parts += panel(title, rows, top)
        top += 60 + svg.ROW * len(rows) + 24
    for line in ("Each holds the lock for 1 ms and pauses for 1 ms; rounds of 3 s.", "> 3,000: the end of the round cut the wait off.",
                 "p99 wait: from one line to the next it grows tenfold."):
        parts.append(svg.text(0, top, line, size=12, faint=True))
        top += 17
    return svg.picture(WIDTH, top, parts, "Lock libraries of several languages compared with ours")


if __name__ == "__main__":
    print(draw((BENCHES / "peers/README.md").read_text()), end="")
