"""The plot: acquisitions a second and the p99 of the wait, where 32 workers and where 1,000 tasks want one lock."""
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import svg  # noqa: E402

PANELS = ("workers", "tasks")
NAMES, BAR, WIDTH, GAP = 150, 300, 890, 80


def panel(comparison, title, top):
    """One case: a row a library, the rate on the left, the wait on the right in powers of ten."""
    left, right, first, libraries = NAMES, NAMES + BAR + GAP, top + 40, comparison.libraries
    yield svg.text(0, top + 12, title, size=13, weight="bold")
    yield svg.text(left, top + 32, "acquisitions a second")
    yield svg.text(right, top + 32, "p99 of the wait, ms (logarithmic axis)")
    ours = [not library.beside for library in libraries]
    yield from svg.row_labels(left - 8, first, [library.label for library in libraries], ours)
    yield from svg.grid(right, first, len(libraries), BAR, 4)
    rates, waits = ([comparison.median(library, figure) for library in libraries] for figure in ("rate", "p99"))
    yield from svg.column(left, first, rates, svg.linear(rates, BAR), ours)
    yield from svg.column(right, first, waits, svg.powers_of_ten(waits, BAR, 4), ours)


def draw(libraries, comparisons, titles):
    parts, top = [], 8
    for name in PANELS:
        if name in comparisons and comparisons[name].libraries:
            parts += panel(comparisons[name], titles[name], top)
            top += 40 + svg.ROW * len(comparisons[name].libraries) + 28
    top = max(top, 40)
    parts.append(svg.text(0, top, "A wait of some 3,000 ms was cut off by the end of its round of 3 s.", faint=True))
    top += 14
    return svg.picture(WIDTH, top, parts, "Lock libraries of Java, Go, Python, Node and PHP beside ours")
