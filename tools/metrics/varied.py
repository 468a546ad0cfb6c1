"""A load under which a server does all that the dashboard shows."""

import itertools
import random
import socket
import subprocess
import threading
import time

from parts import Client

KEYS = 200_000
# Of one field each, so that deleting them leaves something to reclaim.
BIG = 100_000
SCRIPT = "local n = 0 for i = 1, 20000000 do n = n + i end return n"


class Load:
    """What clients and redis-benchmark do to a master for some seconds, and what happens to the link of its replica."""

    def __init__(self, generator, master, link, seconds):
        self.generator, self.master, self.link = generator, master, link
        self.begin, self.seconds = time.monotonic(), seconds
        self.failures = []

    def run(self):
        """Returns what has gone wrong."""
        parts = [
            (0.00, 0.15, self.program(*self.filled("key:", 0.15))),
            (0.15, 1.00, self.program(*self.opened(24, 1500, "zipf", "get"))),
            (0.02, 1.00, self.program(*self.opened(8, 300, "uniform", "HSET", "user:{key}", "name", "{value}"))),
            (0.20, 0.45, self.program(*self.benchmark(50, 1, "set,get,incr,lpush,rpop,sadd,hset,zadd,mset"))),
            (0.52, 0.68, self.program(*self.filled("key:", 0.16))),
            (0.72, 1.00, self.program(*self.benchmark(30, 8, "get,set,spop,lrange_100"))),
            (0.02, 1.00, self.short_lives),
            (0.05, 1.00, self.mistakes),
            (0.05, 1.00, self.slow_ones),
            (0.10, 1.00, self.waiting),
            (0.05, 1.00, self.visitors),
            (0.00, 1.00, self.long_values),
            (0.15, 1.00, self.deletions),
            (0.46, 0.50, self.silence),
            (0.50, 0.52, self.absence),
        ]
        threads = [threading.Thread(target=self.part, args=part) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.failures

    def part(self, begin, end, act):
        time.sleep(max(self.begin + begin * self.seconds - time.monotonic(), 0))
        try:
            act(self.begin + end * self.seconds)
        except (OSError, ValueError) as error:
            self.failures.append(f"{act.__name__}: {error}")

    def every(self, interval_s, until):
        """Numbers from 0 on, one in each interval."""
        due = time.monotonic()
        for number in itertools.count():
            due += interval_s
            if due > until:
                return
            time.sleep(max(due - time.monotonic(), 0))
            yield number

    def program(self, *words):
        def run(until):
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                _, said = process.communicate(timeout=max(until - time.monotonic(), 1))
                if process.returncode:
                    self.failures.append(f"{words[0]}: {said}")
            except subprocess.TimeoutExpired:
                process.terminate()
                process.communicate()

        return run

    def load(self, *words):
        return [self.generator, "--port", str(self.master.port), *words]

    def filled(self, prefix, share):
        """All keys, one after the other, at the rate that the time allows."""
        rate = str(KEYS / (share * self.seconds))
        words = ["--clients", "8", "--rate", rate, "--requests", str(KEYS), "--keys", str(KEYS), "--prefix", prefix]
        return self.load(*words, "--order", "sequential", "--value-bytes", "1000", "set")

    def opened(self, clients, rate, order, *command):
        words = ["--clients", str(clients), "--rate", str(rate), "--seconds", str(self.seconds), "--keys", str(KEYS)]
        return self.load(*words, "--order", order, "--value-bytes", "100", *command)

    def benchmark(self, clients, pipeline, tests):
        words = ["-p", str(self.master.port), "-c", str(clients), "-P", str(pipeline), "-r", "20000"]
        return ["redis-benchmark", *words, "-d", "100", "-n", "60000", "-t", tests, "-q", "-l"]

    def short_lives(self, until):
        client = Client(self.master.port)
        for number in self.every(0.02, until):
            for at in range(10):
                client.call(f"SET short:{number}:{at} x PX {random.randint(200, 20000)}")
            client.call(f"HSETEX session:{number} PX {random.randint(1000, 9000)} FIELDS 1 token:{number} x")
        client.close()

    def mistakes(self, until):
        client = Client(self.master.port)
        client.call("SET text text")
        for number in self.every(0.2, until):
            client.call("LPUSH text x")
            if number % 2:
                client.call("EVALSHA ffffffffffffffffffffffffffffffffffffffff 0")
            if number % 7 == 0:
                client.call("SET text")
        client.close()

    def slow_ones(self, until):
        client = Client(self.master.port)
        client.call("CONFIG SET slowlog-log-slower-than 2000")
        for number in range(20_000):
            client.call(f"ZADD ranking {number} member:{number}")
        for number in self.every(self.seconds / 60, until):
            client.call("ZRANGE ranking 0 -1")
            if number % 3 == 0:
                client.call("SORT ranking BY nosort LIMIT 0 5000")
            if number % 5 == 0:
                client.call(f'EVAL "{SCRIPT}" 0')
        client.close()

    def waiting(self, until):
        """Clients that wait for elements, and subscribers."""
        subscribers = [Client(self.master.port) for _ in range(6)]
        for client in subscribers:
            client.call("SUBSCRIBE news")
        waiting = [socket.create_connection(("127.0.0.1", self.master.port)) for _ in range(10)]
        for number, client in enumerate(waiting):
            client.sendall(f"BLPOP jobs:{number} 0\r\n".encode())
        speaker = Client(self.master.port)
        for number in self.every(0.5, until):
            speaker.call("PUBLISH news x")
            # Half of the clients get an element and wait again.
            if number % 20 == 0:
                for at, client in enumerate(waiting[:5]):
                    speaker.call(f"RPUSH jobs:{at} x")
                    client.sendall(f"BLPOP jobs:{at} 0\r\n".encode())
        for client in [*subscribers, *waiting, speaker]:
            client.close()

    def visitors(self, until):
        """Clients that come, ask and go."""
        for number in self.every(0.1, until):
            for _ in range(1 + number // 200 % 3):
                client = Client(self.master.port)
                client.call("SELECT 2")
                client.call(f"SET visit:{number % 500} x")
                client.close()

    def long_values(self, until):
        client = Client(self.master.port)
        client.call("SELECT 1")
        for number in self.every(0.25, until):
            client.call_words("SET", f"picture:{number % 60}", "x" * random.randint(50_000, 400_000))
        client.close()

    def deletions(self, until):
        """Large collections, which are deleted together."""
        client = Client(self.master.port)
        for _ in self.every(self.seconds / 6, until):
            for at in range(BIG // 100):
                fields = " ".join(f"field:{at * 100 + field} x" for field in range(100))
                client.call(f"HSET big:{at % 200} {fields}")
            client.call("DEL " + " ".join(f"big:{at}" for at in range(200)))
        client.close()

    def silence(self, until):
        """Nothing goes through between the replica and its master."""
        self.link.passes.clear()
        time.sleep(max(until - time.monotonic(), 0))

    def absence(self, until):
        """The replica has no connection; then it has one again."""
        self.link.cut(until)


class Link:
    """Between a replica and its master."""

    def __init__(self, port):
        self.target, self.open = port, []
        self.passes = threading.Event()
        self.passes.set()
        self.closed_until = 0.0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            if time.monotonic() < self.closed_until:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            self.open = [near, far]
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=ends, daemon=True).start()

    def copy(self, source, sink):
        try:
            while data := source.recv(1 << 18):
                self.passes.wait()
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()

    def cut(self, until):
        self.closed_until = until
        for end in self.open:
            end.shutdown(socket.SHUT_RDWR)
        self.passes.set()
