"""What works with metrics in a real run share: servers with metrics, a client, Prometheus."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kedis"
DEADLINE_S = 60

sys.path.insert(0, str(ROOT / "tests"))
from ports import free_port  # noqa: E402


def default_server():
    """KEDIS_SERVER, or the release build in the target folder."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", CACHE / "target"))
    return os.environ.get("KEDIS_SERVER", str(target / "release" / "kedis-server"))


def wait_for(what, condition):
    """What the condition returns, once that is true."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        try:
            found = condition()
            if found:
                return found
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"gave up waiting for {what}")


def get(url, **headers):
    """The body of the response to a GET."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as reply:
        return reply.read().decode()


def filled(expression, rate, span_s):
    """An expression of the dashboard with Grafana's variables filled in: all servers, the window for
    rates, the time that is shown."""
    values = {"$__rate_interval": rate, "$__range": f"{max(round(span_s), 1)}s", "$instance": ".+"}
    for name, value in values.items():
        expression = expression.replace(name, value)
    return expression


class Client:
    """A connection that sends inline requests; errors are replies like others."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def call(self, line):
        self.socket.sendall(line.encode() + b"\r\n")
        return self.reply()

    def call_words(self, *words):
        """A request of any length."""
        parts = [f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words]
        self.socket.sendall("".join(parts).encode())
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if line[:1] == b"$" and int(line[1:]) >= 0:
            return self.file.read(int(line[1:]) + 2)[:-2].decode()
        if line[:1] == b"*":
            return [self.reply() for _ in range(int(line[1:]))]
        return line[1:].strip().decode()

    def close(self):
        self.file.close()
        self.socket.close()


class Kedis:
    """A server with metrics, which is ready."""

    def __init__(self, program, folder, name, *flags):
        self.name, self.port, self.metrics = name, free_port(), free_port()
        data = folder / name
        data.mkdir()
        self.log = open(folder / f"{name}.log", "wb")
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(data)]
        command += ["--metrics-port", str(self.metrics), "--disk-reserve", "1mb", "--rocksdb.statistics", "yes", *flags]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        wait_for(name, lambda: get(f"http://127.0.0.1:{self.metrics}/readyz"))

    def page(self):
        return get(f"http://127.0.0.1:{self.metrics}/metrics")


class Prometheus:
    """Debian's Prometheus, which scrapes the targets (by the names they get), and knows the rules for alerts."""

    def __init__(self, folder, targets, interval_s=1):
        self.port = free_port()
        interval = f"{interval_s}s"
        static = [{"targets": [address], "labels": {"instance": name}} for name, address in targets.items()]
        config = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [str(ROOT / "tools/metrics/kedis-alerts.yml")],
            "scrape_configs": [{"job_name": "kedis", "static_configs": static}],
        }
        file = folder / "prometheus.yml"
        # JSON is YAML.
        file.write_text(json.dumps(config))
        self.log = open(folder / "prometheus.log", "ab")
        command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        command.append(f"--web.listen-address=127.0.0.1:{self.port}")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        wait_for("Prometheus", lambda: get(f"http://127.0.0.1:{self.port}/-/ready"))

    def api(self, path, **query):
        query = urllib.parse.urlencode(query)
        return json.loads(get(f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"))["data"]
