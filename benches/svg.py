"""Pictures for the documentation: bars in rows, on a light page and on a dark one."""
import html
import math

BAR_HEIGHT, ROW = 12, 20

STYLE = """<style>
.page { fill: #ffffff } text { fill: #24292f } .faint { fill: #59636e } .grid { stroke: #e3e6ea }
.ours { fill: #1b7f5c } .theirs { fill: #b9bec6 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #e6edf3 } .faint { fill: #9198a1 } .grid { stroke: #30363d }
.ours { fill: #2ea67c } .theirs { fill: #59636e }
}
</style>"""


def text(x, y, words, anchor="start", size=11, weight="normal", faint=False):
    kind = ' class="faint"' if faint else ""
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"{kind}>'
            f"{html.escape(words, quote=False)}</text>")


def bar(x, y, width, ours):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1, width):.1f}" height="{BAR_HEIGHT}" rx="2" class="{"ours" if ours else "theirs"}"/>'


def short(figure):
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"


def linear(figures, width):
    """Bars as long as what they stand for."""
    most = max(figures)
    return [figure / most * width for figure in figures]


def powers_of_ten(figures, width, powers):
    """Bars that grow by the same length each time the figure grows tenfold; 1 and less has none."""
    return [min(1, max(0, math.log10(max(figure, 1)) / powers)) * width for figure in figures]


def row_labels(x, top, labels, ours, size):
    for number, (label, own) in enumerate(zip(labels, ours)):
        yield text(x, top + number * ROW + 12, label, "end", size, "bold" if own else "normal")


def column(x, top, figures, lengths, ours, size):
    """A bar for each row, and behind it what it stands for."""
    for number, (figure, length, own) in enumerate(zip(figures, lengths, ours)):
        y = top + number * ROW
        yield bar(x, y + 1, length, own)
        yield text(x + length + 5, y + 12, figure, size=size, weight="bold" if own else "normal")


def grid(x, top, rows, width, powers):
    """A line for each power of ten."""
    for power in range(powers + 1):
        at = x + power / powers * width
        yield f'<line x1="{at:.0f}" x2="{at:.0f}" y1="{top}" y2="{top + ROW * rows}" class="grid"/>'


def picture(width, height, parts, title):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 0 {width} {height}" width="{width}" height="{height}"'
        f' font-family="system-ui, sans-serif" role="img"><title>{html.escape(title, quote=False)}</title>', STYLE,
        f'<rect x="-12" width="{width}" height="{height}" rx="6" class="page"/>', *parts, "</svg>", ""])
