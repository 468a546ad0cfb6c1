"""Draws panels as Grafana lays them out: a PNG for each row of a dashboard."""

import io
from datetime import datetime, timezone
from itertools import cycle, pairwise

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch
from PIL import Image

import units

# Grafana's grid has 24 columns; sizes are points, with 100 to the inch.
WIDTH, UNIT_HEIGHT, GAP, HEADER = 1200, 35, 8, 34
DPI = 150
MAX_BYTES = 300_000
PAGE, PANEL, BORDER, TEXT, FAINT, GRID = "#f4f5f5", "#ffffff", "#d8d9da", "#24292e", "#6e7175", "#e6e7e8"
NAMED = {"red": "#d13438", "orange": "#e07b00", "green": "#2c9a4b", "blue": "#2f6fd0"}
COLORS = [
    "#2c9a4b", "#d9a400", "#2f6fd0", "#e07b00", "#d13438", "#8a4fc8", "#16a3a3", "#c2478f",
    "#7a8b00", "#5c7cfa", "#a0522d", "#4a5568", "#66bb6a", "#ff9e80", "#90a4ae", "#b39ddb",
]
# Of the legend: an entry's mark, and the space after it.
MARK, AFTER, LINE = 16, 14, 17

matplotlib.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9 * 0.72, "axes.linewidth": 0})


def draw(dashboard, folder):
    """Writes the pictures; returns what is wrong with them."""
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    ends = [row["gridPos"]["y"] for row in rows[1:]] + [float("inf")]
    failures = []
    for row, end in zip(rows, ends):
        begin = row["gridPos"]["y"]
        below = [panel for panel in dashboard["panels"] if begin < panel["gridPos"]["y"] < end]
        file = folder / f"dashboard-{row['title'].lower().split()[0].strip(',')}.png"
        picture = Picture(row["title"], below, begin + 1, dashboard["times"]).png()
        file.write_bytes(picture)
        print(f"{file}: {len(picture) / 1000:.0f} kB")
        if len(picture) > MAX_BYTES:
            failures.append(f"{file}: {len(picture)} bytes are more than {MAX_BYTES}")
    return failures


class Picture:
    """A row of the dashboard."""

    def __init__(self, title, panels, top, times):
        rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) - top
        self.top, self.times = top, times
        self.height = HEADER + rows * UNIT_HEIGHT + GAP
        self.figure = Figure(figsize=(WIDTH / 100, self.height / 100), dpi=DPI, facecolor=PAGE)
        self.canvas = FigureCanvasAgg(self.figure)
        self.text(GAP * 2, HEADER / 2 + 2, f"▾  {title}", size=13, weight="bold", va="center")
        for panel in panels:
            self.panel(panel)

    def png(self):
        """As a picture with a palette: of a few colours, it takes a fourth of the bytes."""
        buffer = io.BytesIO()
        self.canvas.print_png(buffer)
        image = Image.open(buffer).convert("RGB")
        small = io.BytesIO()
        image.quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
        return small.getvalue()

    def text(self, x, y, text, size=11, color=TEXT, **how):
        """Text at a place from the upper left, in points."""
        return self.figure.text(x / WIDTH, 1 - y / self.height, text, fontsize=size * 0.72, color=color, **how)

    def width(self, text, size, **how):
        probe = self.text(0, 0, text, size, **how)
        extent = probe.get_window_extent(self.canvas.get_renderer())
        probe.remove()
        return extent.width * 100 / DPI

    def axes(self, x, y, width, height):
        box = (x / WIDTH, 1 - (y + height) / self.height, width / WIDTH, height / self.height)
        axes = self.figure.add_axes(box, facecolor="none")
        axes.tick_params(length=0, labelsize=9.5 * 0.72, labelcolor=FAINT, pad=3)
        axes.set_xlim(self.times["begin"], self.times["end"])
        return axes

    def panel(self, panel):
        grid = panel["gridPos"]
        column = (WIDTH - GAP) / 24
        x, y = GAP + grid["x"] * column, HEADER + (grid["y"] - self.top) * UNIT_HEIGHT
        width, height = grid["w"] * column - GAP, grid["h"] * UNIT_HEIGHT - GAP
        box = (x / WIDTH, 1 - (y + height) / self.height)
        style = {"boxstyle": "square,pad=0", "facecolor": PANEL, "edgecolor": BORDER, "linewidth": 0.7, "zorder": -1}
        self.figure.add_artist(FancyBboxPatch(box, width / WIDTH, height / self.height, **style))
        title = panel["title"]
        self.text(x + 9, y + 17, title, size=11.5, weight="bold", va="center")
        if panel["description"]:
            about = x + 9 + self.width(title, 11.5, weight="bold") + 12
            self.text(about, y + 17, "i", size=8, color=FAINT, weight="bold", ha="center", va="center")
            self.figure.add_artist(Line2D([about / WIDTH], [1 - (y + 17) / self.height], marker="o", markersize=8,
                                          markerfacecolor="none", markeredgecolor=FAINT, markeredgewidth=0.6))
        inner = (x, y + 30, width, height - 30)
        if not panel["series"]:
            self.text(x + width / 2, y + height / 2, "No data", size=12, color=FAINT, ha="center", va="center")
        elif panel["type"] == "stat":
            self.stat(panel, *inner)
        else:
            self.timeseries(panel, *inner)

    def stat(self, panel, x, y, width, height):
        """The last value in large digits, above what it was before."""
        defaults = panel["fieldConfig"]["defaults"]
        (_, points), *_ = panel["series"]
        value = points[-1][1]
        text, color = units.with_unit(defaults["unit"], value), None
        for mapping in defaults["mappings"]:
            found = mapping["options"].get(f"{value:g}")
            if found:
                text, color = found["text"], found["color"]
        if color is None:
            reached = [s for s in defaults["thresholds"]["steps"] if s["value"] is None or s["value"] <= value]
            color = reached[-1]["color"]
        size = 24 if len(text) < 9 else 19
        self.text(x + width / 2, y + 22, text, size=size, color=NAMED[color], weight="bold", ha="center", va="center")
        axes = self.axes(x + 1, y + height * 0.5, width - 2, height * 0.5 - 1)
        axes.axis("off")
        values = [value for _, value in points]
        low, high = min(values), max(values)
        room = (high - low) or abs(high) or 1
        axes.set_ylim(low - room * 0.1, high + room * 0.1)
        times = [at for at, _ in points]
        axes.fill_between(times, values, low - room, color=NAMED[color], alpha=0.15, linewidth=0)
        axes.plot(times, values, color=NAMED[color], linewidth=0.9)

    def timeseries(self, panel, x, y, width, height):
        defaults = panel["fieldConfig"]["defaults"]
        colors = dict(zip((name for name, _ in panel["series"]), cycle(COLORS)))
        lines = self.legend(list(colors.items()), x + 10, width - 20)
        below = 24 + len(lines) * LINE
        for at, line in enumerate(lines):
            self.legend_line(line, y + height - 10 - (len(lines) - 1 - at) * LINE)
        custom = defaults["custom"]
        stacked = custom["stacking"]["mode"] == "normal"
        scale = custom.get("scaleDistribution", {}).get("type", "linear")
        low, high = 0, highest(panel["series"], stacked) * 1.06 or 1
        if scale == "log":
            low, marks = units.powers(defaults["unit"], lowest(panel["series"]), high)
        else:
            marks = units.ticks(defaults["unit"], low, high)
        left = 14 + max(self.width(label, 9.5) for _, label in marks)
        axes = self.axes(x + left, y + 6, width - left - 14, height - below - 8)
        axes.set_yscale(scale)
        axes.minorticks_off()
        axes.set_ylim(low, high)
        axes.set_yticks([at for at, _ in marks], [label for _, label in marks])
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        self.times_below(axes)
        self.series(axes, panel["series"], colors, stacked, custom["fillOpacity"] / 100)

    def times_below(self, axes):
        minute = 60
        first = int(self.times["begin"] // minute + 1) * minute
        every = max(1, round((self.times["end"] - self.times["begin"]) / minute / 5)) * minute
        marks = list(range(first, int(self.times["end"]), every))
        axes.set_xticks(marks, [datetime.fromtimestamp(at, timezone.utc).strftime("%H:%M") for at in marks])

    def series(self, axes, series, colors, stacked, opacity):
        below = {}
        for name, points in series:
            times, values, base = [], [], []
            for at, value in with_gaps(points):
                times.append(at)
                base.append(below.get(at, 0) if stacked else 0)
                values.append(value + base[-1])
                if stacked and value == value:
                    below[at] = values[-1]
            if opacity:
                axes.fill_between(times, values, base, color=colors[name], alpha=opacity, linewidth=0)
            axes.plot(times, values, color=colors[name], linewidth=0.9)

    def legend(self, entries, x, width):
        """The entries in lines, each with its place; what is not the last has to fit."""
        lines, at = [[]], 0
        for name, color in entries:
            needs = MARK + self.width(name, 10) + AFTER
            if at and at + needs - AFTER > width:
                lines.append([])
                at = 0
            lines[-1].append((x + at, name, color))
            at += needs
        return lines

    def legend_line(self, line, y):
        for x, name, color in line:
            mark = [x / WIDTH, (x + MARK - 5) / WIDTH], [1 - y / self.height] * 2
            self.figure.add_artist(Line2D(*mark, color=color, linewidth=2.2))
            self.text(x + MARK, y + 0.5, name, size=10, va="center")


def highest(series, stacked):
    sums = {}
    for _, points in series:
        for at, value in points:
            if value == value and abs(value) != float("inf"):
                sums[at] = sums.get(at, 0) + value if stacked else max(sums.get(at, 0), value)
    return max(sums.values(), default=0)


def lowest(series):
    """The least number above 0."""
    return min((value for _, points in series for _, value in points if value > 0), default=1)


def with_gaps(points):
    """Lines end where samples are missing."""
    step = min((after[0] - before[0] for before, after in pairwise(points)), default=0)
    previous = None
    for at, value in points:
        if previous is not None and at - previous > step * 1.5:
            yield at - step / 2, float("nan")
        yield at, value
        previous = at
