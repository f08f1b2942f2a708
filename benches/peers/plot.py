"""The plot: acquisitions a second and the p99 of the wait, where 32 workers and where 1,000 tasks want one lock."""
import math

PANELS = ("workers", "tasks")
NAMES, BAR, WIDTH, GAP, ROW = 150, 300, 860, 40, 18
OURS, THEIRS, TEXT, GRID = "#1b7f5c", "#b9bec6", "#24292f", "#e3e6ea"


def text(x, y, words, anchor="start", size=11, weight="normal"):
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{TEXT}">{words}</text>'


def bar(x, y, width, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1, width):.1f}" height="12" rx="2" fill="{colour}"/>'


def short(figure):
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"


def panel(comparison, title, top):
    """One case: a row a library, the rate on the left, the wait on the right in powers of ten."""
    left, right = NAMES, NAMES + BAR + GAP + 40
    yield text(0, top + 12, title, size=13, weight="bold")
    yield text(left, top + 32, "acquisitions a second")
    yield text(right, top + 32, "p99 of the wait, ms, each line ten times the one before")
    first, libraries = top + 40, comparison.libraries
    most = max(comparison.median(library, "rate") for library in libraries)
    for power in range(5):
        x = right + power / 4 * BAR
        yield f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{first}" y2="{first + ROW * len(libraries)}" stroke="{GRID}"/>'
    for number, library in enumerate(libraries):
        y, colour = first + number * ROW, THEIRS if library.beside else OURS
        rate, wait = comparison.median(library, "rate"), comparison.median(library, "p99")
        yield text(left - 8, y + 11, library.label, "end", weight="normal" if library.beside else "bold")
        yield bar(left, y + 1, rate / most * BAR, colour)
        yield text(left + rate / most * BAR + 5, y + 11, short(rate))
        width = min(1, max(0, math.log10(max(wait, 1)) / 4)) * BAR
        yield bar(right, y + 1, width, colour)
        yield text(right + width + 5, y + 11, short(wait))


def draw(libraries, comparisons, titles):
    shown = [name for name in PANELS if name in comparisons and comparisons[name].libraries]
    height, parts, top = 0, [], 8
    for name in shown:
        parts += panel(comparisons[name], titles[name], top)
        top += 40 + ROW * len(comparisons[name].libraries) + 28
    height = max(top, 40)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="system-ui, sans-serif">',
        f'<rect x="-8" width="{WIDTH}" height="{height}" fill="#ffffff"/>', *parts, "</svg>", ""])
