"""What the runners of the clients' suites share: servers, the lists of what is left out, and outcomes.

A list is a file beside this one, named as the suite is. A line is a test, a group and
the reason, with tabs between. A test is named as the run prints it; `*` stands for any text.
The groups:

    absent      needs something that the server does not have
    differs     expects a behaviour in which the server differs on purpose
    suite       needs what the suite's own machines have, or does not pass against Redis either
    fault       fails because of a fault of the server that is to be mended

What is left out does not run, if the suite can leave it out. An entry that matches no test of
a whole run is an error.
"""

import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path[:0] = [str(TESTS), str(TESTS / "tcl")]
from ports import free_port  # noqa: E402

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kedis"
GROUPS = ("absent", "differs", "suite", "fault")
START_SECONDS = 60


class Missing(Exception):
    """A suite is left out here; the text says what is missing."""


class Failure(Exception):
    """A suite cannot be prepared."""


@dataclasses.dataclass
class Entry:
    """One line of a list."""

    place: str
    test: str
    group: str
    reason: str
    used: int = 0

    def matches(self, test):
        """Whether the entry is about this test."""
        return re.fullmatch(pattern(self.test), test, re.DOTALL) is not None


@dataclasses.dataclass
class Test:
    """What came of one test: passed, failed, skipped (by the suite itself) or left out."""

    name: str
    outcome: str
    text: str = ""


@dataclasses.dataclass
class Part:
    """Some of a suite that runs by itself: a name, and a function that runs it and returns its tests."""

    name: str
    run: object


def pattern(spelling):
    """A regular expression for a test as a list names it."""
    return ".*".join(map(re.escape, spelling.split("*")))


def entries(suite):
    """The list of a suite."""
    path = HERE / f"{suite}.tsv"
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else (), 1):
        if not line or line.startswith("#"):
            continue
        place, fields = f"{path.name}:{number}", line.split("\t")
        if len(fields) != 3 or fields[1] not in GROUPS or not all(field.strip() for field in fields):
            raise SystemExit(f"{place}: want a test, one of {', '.join(GROUPS)}, and the reason, with tabs between")
        found.append(Entry(place, *fields))
    return found


def source(name, wanted):
    """The source tree of a client whose suite no package registry has."""
    folder = os.environ.get("KEDIS_CLIENT_SOURCES")
    if not folder:
        raise Missing(f"no package registry has its tests; KEDIS_CLIENT_SOURCES names no folder with a tree `{name}`")
    if not (Path(folder) / name / wanted).exists():
        raise Missing(f"$KEDIS_CLIENT_SOURCES/{name} has no {wanted}")
    return Path(folder) / name


def copied(there, here, tree, changes, sources, more=()):
    """A copy of parts of a source tree, in which some texts are replaced.

    `tree` are the files and folders to copy, `changes` a file, a text in it and what stands there instead.
    Another state of the files whose names match `sources`, and other words in `more`, need another copy.
    """
    files = [file for part in tree for file in ([there / part] if (there / part).is_file() else
                                                 sorted((there / part).rglob(sources)))]
    state = json.dumps([[str(file), file.stat().st_mtime, file.stat().st_size] for file in files] + [changes, more])
    stamp = here / "kedis-state"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == state:
        return here
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    for part in tree:
        if (there / part).is_dir():
            shutil.copytree(there / part, here / part, ignore=shutil.ignore_patterns("node_modules", "dist", "target"))
        else:
            shutil.copy(there / part, here / part)
    for file, old, new in changes:
        text = (here / file).read_text(encoding="utf-8")
        if old not in text:
            raise Failure(f"{file} does not have what the runner replaces: {old}")
        (here / file).write_text(text.replace(old, new), encoding="utf-8")
    stamp.write_text(state, encoding="utf-8")
    return here


def need(*tools, otherwise=Failure):
    """Fails, or leaves the suite out, unless all these programs are there."""
    gone = [tool for tool in tools if not shutil.which(tool)]
    if gone:
        raise otherwise(f"{' and '.join(gone)} not found")


def call(command, log, seconds, **more):
    """Runs a command in a process group of its own, with its output in a file; the exit status, None if it took
    too long."""
    with open(log, "ab") as out:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True, **more)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def install(command, **more):
    """Runs a command that prepares a suite."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode != 0:
        raise Failure(f"{command[0]} failed:\n{done.stdout[-3000:]}")


class Work:
    """A folder for one part of a suite, and the servers that run in it."""

    def __init__(self, server):
        self.server = server
        self.folder = Path(tempfile.mkdtemp(prefix="kedis-clients-"))
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *flags):
        """Starts a server with these flags; its port."""
        port = free_port()
        data = self.folder / f"data-{port}"
        data.mkdir()
        self.launch([self.server, "--port", port, "--bind", "127.0.0.1", "--dir", data, "--databases", "16", *flags],
                    port)
        return port

    def launch(self, command, port):
        """Starts a program and waits until it answers on that port."""
        log = self.folder / f"log-{port}"
        with open(log, "wb") as out:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out)
        self.processes.append(process)
        deadline = time.monotonic() + START_SECONDS
        while ask(port, b"PING") != b"+PONG\r\n":
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"{command[0]} does not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.02)

    def ended(self):
        """What a server has logged that ended by itself, as a failed test."""
        for process in self.processes:
            if process.poll() is not None:
                port = process.args[process.args.index("--port") + 1] if "--port" in process.args else "?"
                log = self.folder / f"log-{port}"
                text = log.read_text(errors="replace")[-4000:] if log.exists() else ""
                yield Test(f"the server on port {port} runs to the end", "failed", text)


def ask(port, line):
    """The first line of the server's reply; empty if there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as link:
            link.sendall(line + b"\r\n")
            return link.makefile("rb").readline()
    except OSError:
        return b""


def tail(path, size=4000):
    """The end of a log."""
    try:
        return Path(path).read_text(errors="replace")[-size:]
    except OSError:
        return ""
