"""A server under test: start, load, CPU time, stop."""

import itertools
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START_DEADLINE_S = 60
STOP_DEADLINE_S = 60
QUIET_DEADLINE_S = 60
# A server counts as idle when it uses no more than this share of a core.
QUIET_SHARE = 0.05
QUIET_WINDOW_S = 0.4
SETTLE_DEADLINE_S = 900
SETTLE_CHECKS = 5
LOAD_BATCH = 500


class CaseError(Exception):
    """A case that cannot be measured; the others still can."""


class Server:
    """A server under test."""

    def __init__(self, label, command, folder):
        self.label = label
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.data = tempfile.mkdtemp(prefix=f"{label}-", dir=folder)
        self.log = os.path.join(self.data, "server.log")
        self.words = [*command, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.data]
        self.start()

    def start(self):
        """Starts it on its data."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.words, cwd=self.data, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True)

    def restart(self):
        """Restarts the server; returns the seconds of both steps."""
        begun = time.monotonic()
        self.process.terminate()
        self.process.wait(STOP_DEADLINE_S)
        stopped = time.monotonic()
        self.start()
        self.wait_ready()
        return stopped - begun, time.monotonic() - stopped

    def ask(self, *words):
        """The first line of the reply to a command."""
        with socket.create_connection(("127.0.0.1", self.port)) as link:
            link.sendall(encoded(words))
            return link.makefile("rb").readline()

    def info(self, *sections):
        """The fields of sections of INFO."""
        with socket.create_connection(("127.0.0.1", self.port)) as link:
            link.sendall(encoded(["INFO", *sections]))
            reader = link.makefile("rb")
            text = reader.read(int(reader.readline()[1:])).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def memory(self):
        """Resident memory of the process in bytes."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def disk(self):
        """Bytes of its data directory."""
        files = (os.path.join(folder, name) for folder, _, names in os.walk(self.data) for name in names)
        return sum(os.stat(file).st_blocks * 512 for file in files)

    def wait_ready(self):
        """Returns when it answers PING."""
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            self.check()
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                    link.sendall(b"PING\r\n")
                    if link.recv(16).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            time.sleep(0.02)
        raise CaseError(f"{self.label} did not answer within {START_DEADLINE_S} s; its log: {self.tail()}")

    def check(self):
        """Fails the case if the server has exited."""
        if self.process.poll() is not None:
            raise CaseError(f"{self.label} ended ({self.process.returncode}); its log:\n{self.tail()}")

    def tail(self):
        """The last lines of its log."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-20:])

    def written(self):
        """Bytes that it has had the disk write."""
        with open(f"/proc/{self.process.pid}/io", encoding="ascii") as file:
            fields = dict(line.split(": ") for line in file.read().splitlines())
        return int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])

    def cpu_s(self):
        """CPU time of the process so far, over all threads."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def wait_quiet(self):
        """Waits until the server is nearly idle, or for a limited time."""
        deadline = time.monotonic() + QUIET_DEADLINE_S
        before = self.cpu_s()
        while time.monotonic() < deadline:
            time.sleep(QUIET_WINDOW_S)
            self.check()
            now = self.cpu_s()
            if now - before <= QUIET_SHARE * QUIET_WINDOW_S:
                return
            before = now

    def settle(self):
        """Waits until no compaction runs or is pending."""
        names = ("flush_pending", "immutable_memtables", "compaction_pending", "running_compactions")
        deadline, quiet = time.monotonic() + SETTLE_DEADLINE_S, 0
        while quiet < SETTLE_CHECKS:
            if time.monotonic() > deadline:
                raise CaseError(f"compactions still run after {SETTLE_DEADLINE_S} s")
            fields = self.info("rocksdb")
            quiet = 0 if any(int(fields.get(name, 0)) for name in names) else quiet + 1
            time.sleep(0.2)
        self.wait_quiet()

    def load(self, commands):
        """Sends `commands` pipelined and checks the replies."""
        with socket.create_connection(("127.0.0.1", self.port)) as link, link.makefile("rb") as reader:
            source = iter(commands)
            while batch := list(itertools.islice(source, LOAD_BATCH)):
                link.sendall(b"".join(map(encoded, batch)))
                read_replies(reader, len(batch), self.label)

    def stop(self):
        """Ends it, by its process id, and removes its data."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.data, ignore_errors=True)


def encoded(words):
    """A command, encoded in RESP."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word.encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def read_simple_replies(link, count, label):
    """Reads `count` one-line replies; an error among them ends the case."""
    buffer = b""
    while count:
        data = link.recv(1 << 16)
        if not data:
            raise CaseError(f"{label} closed the connection while it was loaded")
        *lines, buffer = (buffer + data).split(b"\r\n")
        for line in lines:
            if line.startswith(b"-"):
                raise CaseError(f"{label} refused a command of the load: {line.decode(errors='replace')}")
        count -= len(lines)


def read_replies(reader, count, label):
    """Reads `count` replies of any shape (RESP2) and drops them; an error ends the case."""
    while count:
        count -= 1
        line = reader.readline()
        if not line.endswith(b"\r\n"):
            raise CaseError(f"{label} closed the connection")
        if line.startswith(b"-"):
            raise CaseError(f"{label}: {line.decode(errors='replace').strip()}")
        if line.startswith(b"$") and line != b"$-1\r\n":
            reader.read(int(line[1:]) + 2)
        elif line.startswith(b"*"):
            count += max(0, int(line[1:]))


def cache_root():
    """The folder for everything this project caches."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "kedis")


def built(name):
    """A program of the release build."""
    root = os.path.dirname(os.path.dirname(HERE))
    for folder in (os.environ.get("CARGO_TARGET_DIR"), os.path.join(cache_root(), "target"),
                   os.path.join(root, "target")):
        binary = folder and os.path.join(folder, "release", name)
        if binary and os.access(binary, os.X_OK):
            return binary
    kind, _, last = name.rpartition("/")
    wanted = f"--example {last}" if kind else f"--bin {last}"
    raise SystemExit(f"no {name}: build it with `cargo build --release {wanted}`")


def built_server():
    """The command of the release build's server."""
    try:
        return shlex.quote(built("kedis-server"))
    except SystemExit as missing:
        raise SystemExit(f"{missing}, or name one with --server") from None
