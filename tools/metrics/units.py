"""Numbers with the units that the dashboard names, as Grafana writes them."""

import math

# Per unit: steps with the factor from which they hold, and the suffix.
STEPS = {
    "none": [(1, "")],
    "short": [(1, ""), (1e3, " K"), (1e6, " Mil"), (1e9, " Bil")],
    "ops": [(1, " ops/s"), (1e3, "K ops/s"), (1e6, "M ops/s")],
    "bytes": [(1, " B"), (2**10, " KiB"), (2**20, " MiB"), (2**30, " GiB"), (2**40, " TiB")],
    "Bps": [(1, " B/s"), (1e3, " kB/s"), (1e6, " MB/s"), (1e9, " GB/s")],
    "s": [(1e-9, " ns"), (1e-6, " µs"), (1e-3, " ms"), (1, " s"), (60, " min"), (3600, " hour"), (86400, " day")],
    "percentunit": [(0.01, "%")],
}


def step(unit, size):
    """The factor and the suffix for numbers of a size."""
    steps = STEPS[unit]
    fitting = [pair for pair in steps if pair[0] <= abs(size) * (1 + 1e-9)]
    if fitting:
        return fitting[-1]
    return next((pair for pair in steps if pair[0] == 1), steps[0])


def plain(number, digits):
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def with_unit(unit, value):
    """One value, for a panel that shows it in large digits."""
    factor, suffix = step(unit, value)
    shown = value / factor
    digits = 0 if shown == round(shown) else max(0, 2 - int(math.log10(max(abs(shown), 1))))
    return plain(shown, digits) + suffix


def ticks(unit, low, high):
    """Round numbers between two values, four to six of them, with their labels."""
    factor, suffix = step(unit, max(abs(low), abs(high)))
    span = (high - low) / factor / 6
    magnitude = 10 ** math.floor(math.log10(span))
    width = next(nice * magnitude for nice in (1, 2, 2.5, 5, 10) if nice * magnitude >= span * 0.999)
    if unit == "none":
        width = max(width, 1)
    first = math.ceil(low / factor / width - 1e-9)
    last = math.floor(high / factor / width + 1e-9)
    digits = max(0, -math.floor(math.log10(width) + 1e-9)) + 1
    return [(n * width * factor, plain(n * width, digits) + suffix) for n in range(first, last + 1)]


def powers(unit, low, high):
    """Powers of ten from below one number to another one, with their labels; and the first of them."""
    first = math.floor(math.log10(low) + 1e-9)
    powers = [10.0**n for n in range(first, math.floor(math.log10(high)) + 1)]
    return powers[0], [(power, with_unit(unit, power)) for power in powers]
