"""Shared by the steps of tests/migrate/run: servers, tools, comparisons."""

import atexit
import contextlib
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "rdb"), str(HERE.parent / "realdata"), str(HERE.parent), str(HERE)]

import client_library  # noqa: E402

client_library.ensure()

import redis  # noqa: E402
import values  # noqa: E402
from ports import free_port  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_server import Process, redis_server  # noqa: E402
from writer import DBS, UNSTEADY, Writer  # noqa: E402

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", client_library.CACHE / "target"))
SERVER = Path(os.environ.get("KEDIS_SERVER", TARGET / "release" / "kedis-server"))
DEADLINE = 120
scratch = tempfile.TemporaryDirectory(prefix="kedis-migrate-")
failures = []


def kedis(*flags):
    return Process(str(SERVER), *flags)


def quick_redis(*flags):
    """A redis-server that does not wait for more replicas before a full sync."""
    return redis_server("--repl-diskless-sync-delay", "0", *flags)


def say(text):
    print(text, flush=True)


def expect(what, right, detail=""):
    say(f"{what:66} {'ok' if right else 'WRONG'}")
    if not right:
        failures.append(f"{what}: {detail}"[:1000])
        say(f"    {detail}")


class Tool:
    """A running tool; its output goes to a file."""

    def __init__(self, name, source, target, *flags, limit=None):
        """`limit` is the largest size in bytes of a file that it writes."""
        self.name = name
        self.limit = limit
        self.log = Path(scratch.name) / f"{name}-{random.randrange(10**9)}.log"
        line = [str(SERVER.parent / name), "--dst_addr", address(target)]
        if source is not None:
            line += ["--src_addr", address(source)]
        self.line = [*line, *map(str, flags)]
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self.confine)
        atexit.register(self.process.kill)

    def confine(self):
        if self.limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limit))

    def wait(self, seconds=DEADLINE):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"still running: {self.said()[-600:]}"

    def said(self):
        return self.log.read_text(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        return self.wait(20)


def address(server):
    return server if isinstance(server, str) else f"127.0.0.1:{server.port}"


def run(name, source, target, *flags):
    tool = Tool(name, source, target, *flags)
    return tool.wait(), tool.said()


def fill(server, packages=0):
    """Every value in every DB, and realistic records."""
    for db in DBS:
        c = server.connect(db)
        for key, commands in values.commands():
            for name, *args in commands:
                c.execute_command(name, key, *args)
        with c.pipeline(transaction=False) as pipe:
            for n in range(2000):
                pipe.set(b"plain:%d" % n, b"value-%d" % (n * db))
            for n in range(0, 2000, 7):
                pipe.pexpireat(b"plain:%d" % n, int(time.time() * 1000) + 90_000_000 + n)
            for n in range(6000):
                pipe.rpush("long:list", b"item-%d" % n)
                pipe.hset("long:hash", b"field-%d" % n, values.text(n % 50))
                pipe.zadd("long:zset", {b"member-%d" % n: n / 3})
            pipe.set("long:string", b"abc" * 700_000)
            pipe.execute()
    if packages:
        import packages as index

        c = server.connect(0)
        with c.pipeline(transaction=False) as pipe:
            for name, fields, stanza in index.read(packages):
                pipe.hset(b"package:" + name, mapping=fields)
                pipe.set(b"stanza:" + name, stanza)
                pipe.zadd("packages", {name: int(fields.get(b"Size", 0))})
            pipe.execute()


MARKERS = b"kedis:migration:"


def differences(one, other):
    """All differences, except for the markers of running tools."""
    wrong = []
    for db in (*DBS, *UNSTEADY):
        a, b = one.connect(db), other.connect(db)
        found = values.differences(a, b, 0)
        wrong += [(db, *difference) for difference in found if not difference[0].startswith(MARKERS)]
        sizes = [c.dbsize() - len(c.keys(MARKERS + b"*")) for c in (a, b)]
        if sizes[0] != sizes[1]:
            wrong.append((db, "DBSIZE", *sizes))
    return wrong


def wait_for(what, is_so, seconds=DEADLINE):
    """Waits; raises with the result of the last check."""
    end = time.monotonic() + seconds
    error = None
    while time.monotonic() < end:
        try:
            if is_so():
                return
            error = None
        except redis.RedisError as latest:
            error = latest
        time.sleep(0.05)
    raise RuntimeError(f"no {what} after {seconds} s ({error})")


def wait_until_through(source, target):
    """Waits until a key that is written now has reached the target."""
    mark = str(random.random())
    wait_for("source", lambda: source.connect(15).set("mark", mark))
    wait_for("mark", lambda: (source.connect(15).get("mark") or b"").decode() == mark
             and (target.connect(15).get("mark") or b"").decode() == mark)


def wait_until_reclaimed(server):
    """A source replicates an expiry when it removes the key, which takes redis-server
    up to two seconds; KEYS leaves such keys out, DBSIZE counts them."""
    connections = [server.connect(db) for db in (*DBS, *UNSTEADY)]
    wait_for("end of what has expired", lambda: all(c.dbsize() == len(c.keys()) for c in connections))


def compare(title, one, other, is_followed=True):
    """Compares both servers after all writes and expiries."""
    wait_until_reclaimed(one)
    if is_followed:
        wait_until_through(one, other)
    else:
        wait_until_reclaimed(other)
    wrong = differences(one, other)
    keys = sum(other.connect(db).dbsize() for db in (*DBS, *UNSTEADY))
    expect(f"{title}: {keys} keys are equal", not wrong, wrong[:10])


MANY = 400_000


class FakeSource:
    """A fake redis-server, whose data set is these bytes."""

    def __init__(self, data_set):
        self.data_set = data_set

    def __enter__(self):
        self.port = free_port()
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client):
        info = b"redis_version:7.0.15\r\nrun_id:made-up\r\nmaster_repl_offset:1\r\n"
        is_fed = False
        with client, contextlib.suppress(ConnectionError):
            while some := client.recv(4096):
                # Acknowledgements of a replica get no reply.
                if is_fed:
                    continue
                for word in re.findall(rb"\*\d+\r\n\$\d+\r\n(\w+)\r\n", some):
                    is_fed |= word == b"PSYNC"
                    client.sendall({
                        b"PING": b"+PONG\r\n",
                        b"INFO": b"$%d\r\n%s\r\n" % (len(info), info),
                        b"REPLCONF": b"+OK\r\n",
                        b"PSYNC": b"+FULLRESYNC " + b"a" * 40 + b" 1\r\n" + self.data_set,
                    }.get(word, b"-ERR unknown command\r\n"))
