"""For pytest: leaves tests out, leads connections to our servers, and writes what came of each test.

$KEDIS_PYTEST is JSON: `left_out` (regular expressions), `ports` (those that the suite knows,
and ours), `prefix` (of each test's name), `results` (a file) and `version` (that the suite is to see).
"""

import json
import os
import re
import socket
import tracemalloc

GIVEN = json.loads(os.environ["KEDIS_PYTEST"])
LEFT_OUT = [re.compile(text) for text in GIVEN["left_out"]]
PORTS = {int(port): ours for port, ours in GIVEN["ports"].items()}
LOCAL = ("localhost", "127.0.0.1", "::1")
# The suite starts it and never looks at it, and every test takes twice the time.
tracemalloc.start = lambda *_: None


def led(method):
    """A method of a socket that connects to our ports instead of those that the suite knows."""
    def connect(self, address):
        if isinstance(address, tuple) and address[0] in LOCAL and address[1] in PORTS:
            address = ("127.0.0.1", PORTS[address[1]])
        return method(self, address)
    return connect


socket.socket.connect = led(socket.socket.connect)
socket.socket.connect_ex = led(socket.socket.connect_ex)


def name(nodeid):
    """A test as the lists name it."""
    return GIVEN["prefix"] + nodeid


def write(test, outcome, text=""):
    """One line of the file of results."""
    with open(GIVEN["results"], "a", encoding="utf-8") as out:
        out.write(json.dumps([test, outcome, text]) + "\n")


def pytest_collectstart(collector):
    """The suite leaves out what is newer than the server says that it is."""
    info = getattr(collector.config, "REDIS_INFO", None)
    if info is not None:
        info["version"] = GIVEN["version"]


def pytest_collection_modifyitems(config, items):
    """Leaves out what the list names."""
    gone = [item for item in items if any(entry.fullmatch(name(item.nodeid)) for entry in LEFT_OUT)]
    for item in gone:
        write(name(item.nodeid), "left out")
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in set(gone)]


def pytest_collectreport(report):
    """A file that cannot be read is a test that fails."""
    if report.failed:
        write(name(report.nodeid), "failed", str(report.longrepr))


def pytest_runtest_logreport(report):
    """One outcome for the three steps of a test; an error of a later step is one more."""
    if report.failed:
        write(name(report.nodeid), "failed", str(report.longrepr))
    elif report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        write(name(report.nodeid), "skipped", str(reason))
    elif report.when == "call":
        write(name(report.nodeid), "passed")
