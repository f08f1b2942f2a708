#!/usr/bin/env python3
"""The plot of the long haul, drawn from docs/haul.json.

    benches/haul.py            prints the picture
    benches/haul.py --write    takes the figures of a journey from stdin, and writes them and the picture into docs

`make haul ARGS=--write` calls the second.
"""
import datetime
import json
import math
import pathlib
import sys

import svg

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
WIDTH, LEFT, RIGHT, HEIGHT, GAP, SIZE = 440, 44, 16, 110, 62, 13
# What is drawn: a field of each row, what it is called, and by which scale.
PANELS = (("p50", "a command, p50, µs", "powers"), ("p99", "a command, p99, µs", "powers"), ("memory", "memory, MB", "linear"))
STROKES = """<style>
.line { fill: none; stroke-width: 2 } .line.a { stroke: #1b7f5c } .line.b { stroke: #7a5bc0 } .line.c { stroke: #9aa1a9 }
</style>"""
KINDS = ("a", "b", "c")


def rounded(most):
    """Not less than the most, and short to write."""
    step = 10 ** (len(str(int(most))) - 1)
    return (int(most / step) + 1) * step


def scale_of(figures, kind):
    """The marks of an axis, and a function that gives a figure its height from 0 to 1."""
    if kind == "linear":
        most = rounded(max(figures))
        return [most * part for part in (0, 0.5, 1)], lambda figure: figure / most
    low, high = math.floor(math.log10(min(figures))), math.ceil(math.log10(max(figures)))
    return [10**power for power in range(low, high + 1)], lambda figure: (math.log10(figure) - low) / (high - low)


def panel(journeys, field, title, kind, top):
    marks, height = scale_of([row[field] for journey in journeys for row in journey["rows"]], kind)
    width = WIDTH - 12 - LEFT - RIGHT
    yield svg.text(0, top + 13, title, size=SIZE, weight="bold")
    top += 24
    for mark in marks:
        y = top + HEIGHT * (1 - height(mark))
        yield f'<line x1="{LEFT}" x2="{LEFT + width}" y1="{y:.0f}" y2="{y:.0f}" class="grid"/>'
        yield svg.text(LEFT - 6, y + 4, f"{mark:,.0f}", "end", size=12, faint=True)
    for line, journey in zip(KINDS, journeys):
        end = journey["rows"][-1]["seconds"]
        points = (f"{LEFT + row['seconds'] / end * width:.1f},{top + HEIGHT * (1 - height(row[field])):.1f}" for row in journey["rows"])
        yield f'<polyline points="{" ".join(points)}" class="line {line}"/>'


def minutes(journey):
    return f"{journey['rows'][-1]['seconds'] / 60:.0f} min"


def draw(told):
    journeys, top = told["journeys"], 10
    parts = [STROKES]
    for kind, journey in zip(KINDS, journeys):
        parts.append(f'<line x1="0" x2="20" y1="{top + 8}" y2="{top + 8}" class="line {kind}"/>')
        parts.append(svg.text(28, top + 13, f"{journey['name']}, {minutes(journey)}", size=SIZE))
        top += 20
    top += 10
    for field, title, scale in PANELS:
        parts += panel(journeys, field, title, scale, top)
        top += HEIGHT + GAP - 12
    for line in ("Each line goes from the journey's beginning to its end.", f"{journeys[0]['server']} · {told['date']}"):
        parts.append(svg.text(0, top, line, size=12, faint=True))
        top += 17
    return svg.picture(WIDTH, top, parts, "A long haul: latency and memory over time")


def lines(told):
    """JSON with a line for each row."""
    journeys = []
    for journey in told["journeys"]:
        rows = ",\n".join("   " + json.dumps({name: round(value, 2) for name, value in row.items()}) for row in journey["rows"])
        head = json.dumps({name: value for name, value in journey.items() if name != "rows"}, ensure_ascii=False)
        journeys.append(f'  {head[:-1]}, "rows": [\n{rows}\n  ]}}')
    return '{\n "date": %s,\n "journeys": [\n%s\n ]\n}\n' % (json.dumps(told["date"]), ",\n".join(journeys))


def main():
    figures = DOCS / "haul.json"
    told = json.loads(figures.read_text()) if figures.exists() else {"journeys": []}
    if "--write" in sys.argv:
        journey = json.load(sys.stdin)
        journeys = {it["name"]: it for it in told["journeys"]} | {journey["name"]: journey}
        told = {"date": f"{datetime.date.today()}", "journeys": list(journeys.values())}
        figures.write_text(text := lines(told))
        # Of the rounded figures, as everybody else will draw it.
        (DOCS / "haul.svg").write_text(draw(json.loads(text)))
    else:
        print(draw(told), end="")


main()
