"""What long values cost: bytes written to the disk, and rates beside Redis and the disk itself."""

import os
import re
import shutil
import subprocess

from loads import Load
from server import CaseError, Server, built

SIZES = {"100 B": 100, "1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000}
BYTES = 1_000_000_000
LEAST_KEYS = 50
CLIENTS = 16
SECONDS, LEAST_SECONDS = 8, 1.5
# Data, binlog, compactions, and those of Redis' file.
DISK_FACTOR = 8


class Size:
    """The figures of values of one size on one server."""

    def __init__(self, server, size, scale):
        self.server, self.size = server, size
        self.keys = max(LEAST_KEYS, int(BYTES * scale) // size)
        self.seconds = max(LEAST_SECONDS, SECONDS * min(1, scale))
        self.generator = built("examples/load")

    def run(self, *words, **flags):
        """The rate of requests."""
        flags = {"clients": CLIENTS, "keys": self.keys, "value_bytes": self.size, **flags}
        return Load(self.generator, self.server, *words, **flags).result()["rate"]

    def sets(self, order):
        """Sets each key once: the rate, and the bytes written for each byte of the values."""
        before = self.server.written()
        rate = self.run("set", requests=self.keys, order=order)
        return rate, before

    def amplification(self, before):
        """Bytes written since then for each byte of the values, with the work that was left to do."""
        return (self.server.written() - before) / (self.keys * self.size)


def measured(size, commands, folder, scale):
    """Rates of SETs of new keys and of keys that are there, and of GETs, on each server; what ours has written."""
    rates, amplification = {}, []
    for label, command in commands.items():
        server = Server(label, command, folder)
        try:
            server.wait_ready()
            values = Size(server, size, scale)
            for order in ("sequential", "scattered"):
                rate, before = values.sets(order)
                rates.setdefault(label, []).append(rate)
                if label == "ours":
                    server.settle()
                    amplification.append(values.amplification(before))
            rates[label].append(values.run("get", seconds=values.seconds, all_exist=True))
        finally:
            server.stop()
    return rates, amplification


def disk_rate(folder, scale):
    """Bytes in a second that `dd` writes to one file and syncs."""
    file = os.path.join(folder, f"dd-{os.getpid()}")
    count = max(16, int(1_000 * scale))
    try:
        done = subprocess.run(["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={count}", "conv=fsync"],
                              capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
        found = re.search(r"(\d+) bytes .*, ([0-9.]+) s,", done.stderr)
        if done.returncode != 0 or not found:
            raise CaseError(f"dd failed: {done.stderr}")
        return int(found[1]) / float(found[2])
    finally:
        if os.path.exists(file):
            os.unlink(file)


def report(commands, folder, scale):
    """The lines of the table; `scale` of the bytes."""
    if shutil.disk_usage(folder).free < DISK_FACTOR * BYTES * scale:
        raise CaseError(f"{folder} has less than {DISK_FACTOR * BYTES * scale / 1e9:.1f} GB of space")
    yield f"{BYTES * scale / 1e9:.2f} GB of random values for each size, {CLIENTS} clients."
    yield ""
    yield "| value | written per byte: new, again | SET new, MB/s | of Redis | SET again, MB/s | of Redis | GET/s | of Redis |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|"
    for name, size in SIZES.items():
        rates, (new, again) = measured(size, commands, folder, scale)
        cells = [name, f"{new:.2f}, {again:.2f}"]
        for number in range(2):
            cells += [f"{rates['ours'][number] * size / 1e6:,.1f}", f"{rates['ours'][number] / rates['peer'][number]:.2f}"]
        cells += [f"{rates['ours'][2]:,.0f}", f"{rates['ours'][2] / rates['peer'][2]:.2f}"]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield f"`dd conv=fsync` writes {disk_rate(folder, scale) / 1e6:,.0f} MB/s here."
