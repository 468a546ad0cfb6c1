"""What a change or a read at a path costs in JSON documents of three sizes."""

import glob
import json
import os
import socket
import threading

from server import CaseError, Server, encoded

SIZES = {"1 KB": 1_000, "100 KB": 100_000, "10 MB": 10_000_000}
REQUESTS = 40_000
DEPTH = 50
PATH = "$.sections['A-1'].stats.available"
CASES = {
    "JSON.NUMINCRBY": ["JSON.NUMINCRBY", "{key}", PATH, "-1"],
    "JSON.ARRAPPEND": ["JSON.ARRAPPEND", "{key}", "$.sections['A-1'].log", "7"],
    "JSON.GET": ["JSON.GET", "{key}", PATH],
}


def document(size):
    """An event with as many sections as make the text this long."""
    sections, length, number = {}, 0, 1
    while length < size:
        name = f"A-{number}"
        sections[name] = {"name": f"Section {number}", "stats": {"available": 1_000_000, "sold": 0}, "log": [1, 2, 3]}
        length += len(json.dumps({name: sections[name]}))
        number += 1
    return json.dumps({"event": "concert", "sections": sections})


def send(server, words, requests):
    """Sends a command so often, in pipelines; fails if a reply is an error."""
    batch = encoded(words) * DEPTH
    with socket.create_connection(("127.0.0.1", server.port)) as link:
        reader = link.makefile("rb")
        for _ in range(requests // DEPTH):
            # A long batch is sent while replies are read.
            sender = threading.Thread(target=link.sendall, args=(batch,))
            sender.start()
            for _ in range(DEPTH):
                skip(reader)
            sender.join()


def skip(reader):
    """Reads a reply."""
    line = reader.readline()
    if line[:1] == b"-" or not line:
        raise CaseError(f"the reply is {line!r}")
    if line[:1] == b"$":
        reader.read(int(line[1:]) + 2)
    elif line[:1] == b"*":
        for _ in range(int(line[1:])):
            skip(reader)


def log_bytes(server):
    """Bytes in the files of its write-ahead log."""
    files = glob.glob(os.path.join(server.data, "**", "*.log"), recursive=True)
    return sum(os.stat(file).st_size for file in files if file != server.log)


def cost(server, words, requests):
    """Microseconds of the server's processor time and bytes of its log, for each command."""
    server.wait_quiet()
    cpu, log = server.cpu_s(), log_bytes(server)
    send(server, words, requests)
    cpu, log = server.cpu_s() - cpu, log_bytes(server) - log
    return cpu / requests * 1e6, log / requests


def report(commands, folder, scale):
    """The lines of the table; `scale` of the requests."""
    requests = max(int(REQUESTS * scale) // DEPTH, 1) * DEPTH
    rows = {name: [] for name in CASES}
    server = Server("ours", commands["ours"], folder)
    try:
        server.wait_ready()
        for key, size in SIZES.items():
            server.load([["JSON.SET", key, "$", document(size)]])
            for name, words in CASES.items():
                words = [word.format(key=key) for word in words]
                send(server, words, DEPTH)
                rows[name].append(cost(server, words, requests))
    finally:
        server.stop()
    yield f"{requests} requests in pipelines of {DEPTH}, one client."
    yield ""
    yield "| | " + " | ".join(SIZES) + " | 10 MB / 1 KB |"
    yield "|---" + "|---:" * (len(SIZES) + 1) + "|"
    for name, costs in rows.items():
        cells = [f"{cpu:.1f} µs" + (f", {log:.0f} bytes" if log >= 1 else "") for cpu, log in costs]
        (cpu, log), (last_cpu, last_log) = costs[0], costs[-1]
        ratio = f"{last_cpu / cpu:.1f}" + (f", {last_log / log:.1f}" if log >= 1 else "")
        yield f"| `{name}` | " + " | ".join(cells) + f" | {ratio} |"
