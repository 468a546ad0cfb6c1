"""PHP's sessions in the server (phpredis), with locking, shared by several of PHP's own web servers; and a
program that uses phpredis' commands.

    phpredis_sessions.py PORT
"""

import concurrent.futures
import http.cookies
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import redis
from ports import free_ports

PORT = int(sys.argv[1])
HERE = Path(__file__).resolve().parent
WAIT_S = 30
LIFETIME_S = 300
SERVERS = 3
client = redis.Redis(port=PORT)
SETTINGS = {
    "session.save_handler": "redis",
    "session.save_path": f"tcp://127.0.0.1:{PORT}",
    "session.gc_maxlifetime": LIFETIME_S,
    "session.use_strict_mode": 1,
    "redis.session.locking_enabled": 1,
    "redis.session.lock_expire": 60,
    # Tries until it has the lock, every two milliseconds.
    "redis.session.lock_retries": -1,
    "redis.session.lock_wait_time": 2000,
}


class Browser:
    """Keeps the session's cookie."""

    def __init__(self, ports):
        self.ports, self.session = ports, None

    def get(self, what, server=0):
        """The text of the page for a request to one of the web servers, each of which does one thing at a time."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports[server]}/?do={what}")
        if self.session:
            request.add_header("Cookie", f"PHPSESSID={self.session}")
        with urllib.request.urlopen(request, timeout=WAIT_S) as reply:
            for line in reply.headers.get_all("Set-Cookie") or []:
                self.session = http.cookies.SimpleCookie(line)["PHPSESSID"].value
            return reply.read().decode()

    def key(self):
        """Where the session stands."""
        return f"PHPREDIS_SESSION:{self.session}"


def wait_for(what, condition):
    """Polls until the condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"gave up waiting for {what}"
        time.sleep(0.01)


def answers(browser, server):
    """Whether a web server does."""
    try:
        return browser.get("nothing", server) == "nothing"
    except OSError:
        return False


def locking(browser, pool):
    """Requests of one session follow each other, whichever server they reach."""
    assert browser.get("count") == "1"
    rounds = pool.map(lambda server: [browser.get("count", server) for _ in range(20)], range(SERVERS))
    done = sorted(int(text) for texts in rounds for text in texts)
    assert done == list(range(2, 2 + 20 * SERVERS)), done
    client.delete("trace")
    first = pool.submit(browser.get, "hold", 0)
    assert client.blpop("holding", WAIT_S) == (b"holding", browser.session.encode())
    lock = f"{browser.key()}_LOCK"
    assert 0 < client.pttl(lock) <= 60_000
    second = pool.submit(browser.get, "count", 1)
    # Another session does not wait, and the second request does.
    assert Browser(browser.ports).get("count", 2) == "1"
    assert client.lrange("trace", 0, -1) == [b"count"] and not second.done() and not first.done()
    client.rpush("enough", "x")
    assert (first.result(), second.result()) == (str(done[-1] + 1), str(done[-1] + 2))
    assert client.lrange("trace", 0, -1) == [b"count", b"hold", b"count"]
    assert not client.exists(lock)


def contents(browser):
    """What is kept, for how long, and under which name."""
    browser.get("remember")
    found = json.loads(browser.get("recall"))
    assert found == {"what": {"text": "Grüße \0 👋", "list": [1, 2.5, None, True]}, "id": browser.session}, found
    assert 0 < client.ttl(browser.key()) <= LIFETIME_S
    old = browser.key()
    browser.get("renew")
    assert browser.key() != old and not client.exists(old) and client.exists(browser.key())
    assert json.loads(browser.get("recall"))["what"]["text"] == "Grüße \0 👋"
    assert browser.get("end") == "ended" and not client.exists(browser.key())
    # An id that the server does not know is not taken.
    stranger = Browser(browser.ports)
    stranger.session = "a" * 26
    assert stranger.get("count") == "1" and stranger.session != "a" * 26


def main():
    """Starts the web servers, and runs all."""
    ports = free_ports(SERVERS)
    words = [word for name, value in SETTINGS.items() for word in ("-d", f"{name}={value}")]
    environment = dict(os.environ, KEDIS_PORT=str(PORT))
    browser, servers = Browser(ports), []
    with tempfile.TemporaryFile() as log:
        try:
            for port in ports:
                command = ["php", *words, "-S", f"127.0.0.1:{port}", str(HERE / "phpredis_session.php")]
                servers.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log))
            for number in range(SERVERS):
                wait_for(f"web server {number}", lambda number=number: answers(browser, number))
            with concurrent.futures.ThreadPoolExecutor(SERVERS) as pool:
                locking(browser, pool)
            contents(browser)
        except BaseException:
            log.seek(0)
            print(log.read().decode(errors="replace")[-4000:])
            raise
        finally:
            for server in servers:
                server.kill()
                server.wait()
    client.flushall()
    subprocess.run(["php", str(HERE / "phpredis_commands.php"), str(PORT)], check=True, timeout=60)


main()
