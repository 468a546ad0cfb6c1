"""What the check of permissions costs a GET."""

import statistics

from measure import measure
from server import Server

ROUNDS = 11
KEYS = 100_000
REQUESTS = {1: 200_000, 16: 2_000_000}
PASSWORD = "secret"
# The first is what the others are compared with. The second may do everything as well: what it differs in
# from the first is chance, or the cost of being another user.
USERS = {
    "default": ("default", None),
    "all": ("all", ["~*", "+@all"]),
    "`+@read ~key:*`": ("prefix", ["~key:*", "+@read"]),
    "`(+@read ~key:*)`": ("selector", ["-@all", "(~key:* +@read)"]),
    "8 patterns, the last fits": ("patterns", [*[f"~other:{n}:*" for n in range(7)], "~key:*", "+@read"]),
    "`~k?y:*`": ("glob", ["~k?y:*", "+@read"]),
}


def prepare(server):
    """Keys and users."""
    server.wait_ready()
    server.load(["SET", f"key:{n:012}", "v" * 64] for n in range(KEYS))
    server.load([["ACL", "SETUSER", name, "reset", "on", ">" + PASSWORD, *rules]
                 for name, rules in USERS.values() if rules])


def cost(server, name, rules, depth, requests):
    """CPU time of a GET in µs, of this user."""
    flags = ["--user", name, "-a", PASSWORD] if rules else []
    return measure(server, ["GET", "key:__rand_int__"], requests, KEYS, depth, flags=flags).cpu_us


def report(commands, folder, scale):
    """Yields the table's lines: ratios to the default user of the same round."""
    servers = []
    try:
        for label, command in commands.items():
            servers.append(Server(label, command, folder))
        for server in servers:
            prepare(server)
        yield f"CPU time of a GET as a multiple of the default user's in the same round, {ROUNDS} rounds: median (least–most)."
        yield ""
        yield "| `-P` | user | Kedis | Redis |"
        yield "|---:|---|---:|---:|"
        for depth, requests in REQUESTS.items():
            requests = max(1_000, int(requests * scale))
            ratios, base = {}, {}
            # The first round fills caches, and does not count.
            for number in range(ROUNDS + 1):
                users = list(USERS.items())
                for server in servers:
                    round_ = {label: cost(server, *user, depth, requests)
                              for label, user in (users if number % 2 else users[::-1])}
                    if number:
                        base.setdefault(server.label, []).append(round_["default"])
                        for label, value in round_.items():
                            ratios.setdefault((label, server.label), []).append(value / round_["default"])
            yield f"| {depth} | default, µs | " + " | ".join(
                f"{statistics.median(base[side]):.2f}" for side in ("ours", "peer")) + " |"
            for label in list(USERS)[1:]:
                cells = (ratios[label, side] for side in ("ours", "peer"))
                yield f"| {depth} | {label} | " + " | ".join(map(spread, cells)) + " |"
    finally:
        for server in servers:
            server.stop()


def spread(values):
    """The median, and what it lies between."""
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"
