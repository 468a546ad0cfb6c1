"""redis-py's suite: PyPI's source archive of the release holds it."""

import json
import os
import shutil
import sys

import certificates
from common import CACHE, HERE, Failure, Part, Test, Work, call, free_port, install, need, pattern, tail

NAME, VERSION = "redis-py", "8.1.0"
PACKAGES = (
    "pytest==9.*", "pytest-asyncio==1.*", "pytest-timeout==2.*", "packaging", "numpy", "pybreaker", "xxhash==3.6.*",
    "PyJWT", "ujson", "cryptography", "pyopenssl", "requests", "opentelemetry-api", "opentelemetry-sdk", "aiohttp",
    "redis-entraid==1.2.1",
)
# What the suite's decorators see: some commands of newer Redis are here, too.
SEEN_VERSION = "8.10.0"
MASTER = "redis-py-test"
PLAIN, CLUSTER = "standalone", "cluster"
MARKS = {
    PLAIN: "not onlycluster and not cp_integration and not multidb_integration",
    CLUSTER: "onlycluster and not cp_integration and not multidb_integration and not redismod",
}
# The tests of what runs on other machines, and of faults that only those can make.
IGNORED = ("test_scenario", "test_asyncio/test_scenario")
SMOKE = {
    PLAIN: ("test_commands.py", "test_pipeline.py", "test_scripting.py", "test_function.py", "test_encoding.py",
            "test_monitor.py", "test_json.py", "test_bloom.py", "test_connect.py", "test_himport.py"),
    CLUSTER: ("test_cluster_transaction.py",),
}
TEST_SECONDS, PART_SECONDS, SMOKE_SECONDS = 40, 3600, 300


def prepare():
    """The unpacked release and the interpreter that runs it."""
    root = CACHE / "clients" / f"{NAME}-{VERSION}"
    tree, stamp = root / f"redis-{VERSION}", root / "packages"
    python = root / "venv" / "bin" / "python"
    wanted = "\n".join(PACKAGES)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        install([sys.executable, "-m", "venv", root / "venv"])
        pip = [python, "-m", "pip", "--no-input", "--disable-pip-version-check", "-q"]
        install([*pip, "install", f"redis=={VERSION}", *PACKAGES])
        install([*pip, "download", "--no-deps", "--no-binary", "redis", "-d", root, f"redis=={VERSION}"])
        install(["tar", "-xf", root / f"redis-{VERSION}.tar.gz", "-C", root])
        stamp.write_text(wanted)
    if not (tree / "tests" / "conftest.py").exists():
        raise Failure(f"the source archive of {NAME} {VERSION} holds no tests")
    return tree, python


def parts(whole, server, left_out):
    """The suite against a server by itself, and what is for clusters against one that is a whole cluster."""
    tree, python = prepare()
    if not whole:
        return [Part(mode, lambda mode=mode: run(mode, chosen(tree, mode), server, left_out, tree, python,
                                                 SMOKE_SECONDS)) for mode in SMOKE]
    groups = {"commands": [], "asyncio": [], "others": []}
    for path in sorted((tree / "tests").rglob("test_*.py")):
        name = str(path.relative_to(tree / "tests"))
        if not name.startswith(IGNORED):
            group = "asyncio" if name.startswith("test_asyncio/") else "commands" if "commands" in name else "others"
            groups[group].append(path)
    return [Part(f"{mode} {group}", lambda mode=mode, files=files: run(mode, files, server, left_out, tree, python,
                                                                       PART_SECONDS))
            for mode in MARKS for group, files in groups.items()]


def chosen(tree, mode):
    """The files of the smoke test."""
    return [tree / "tests" / name for name in SMOKE[mode]]


def run(mode, files, server, left_out, tree, python, seconds):
    """Runs some files of the suite."""
    with Work(server) as work:
        # The suite looks for certificates in a folder beside its own.
        here = work.folder / "suite"
        shutil.copytree(tree, here, ignore=shutil.ignore_patterns("__pycache__", "dockers"))
        options, ports = serve(work, mode, here)
        results = work.folder / "results"
        given = {"left_out": [pattern(entry.test) for entry in left_out], "ports": ports, "results": str(results),
                 "version": SEEN_VERSION, "prefix": "cluster " if mode == CLUSTER else ""}
        environment = dict(os.environ, KEDIS_PYTEST=json.dumps(given), PYTHONPATH=str(HERE / "preload"),
                           PYTHONDONTWRITEBYTECODE="1")
        command = [python, "-m", "pytest", "-q", "-p", "pytest_kedis", "-p", "no:cacheprovider", "-W", "ignore",
                   "-o", "addopts=", "--timeout", TEST_SECONDS, "-m", MARKS[mode], *options,
                   *[here / path.relative_to(tree) for path in files]]
        log = work.folder / "pytest"
        status = call(command, log, seconds, cwd=here, env=environment)
        tests = []
        if results.exists():
            tests = [Test(*json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]
        # 5: nothing but what is left out.
        if status not in (0, 1, 5):
            why = f"exit status {status}" if status is not None else f"not done after {seconds} s"
            tests.append(Test(f"{mode}: pytest runs to the end", "failed", f"{why}\n{tail(log)}"))
        return tests + list(work.ended())


def serve(work, mode, here):
    """Starts what the suite needs; options of pytest, and the ports that stand for those that the suite knows."""
    shelf = here / "dockers" / PLAIN
    shelf.mkdir(parents=True)
    certificates.certify(shelf / "tls", more=[("test_user", "test_user", "client")])
    (here / "dockers" / CLUSTER).symlink_to(shelf)
    tls = free_port()
    files = {"cert": "redis.crt", "key": "redis.key", "ca-cert": "ca.crt"}
    flags = ["--enable-debug-command", "yes", "--enable-module-command", "yes", "--tls-port", tls,
             "--tls-auth-clients", "optional",
             *[word for what, name in files.items() for word in (f"--tls-{what}-file", shelf / "tls" / name)]]
    flags += ["--tls-auth-clients-user", "CN"]
    if mode == CLUSTER:
        port = work.start(*flags, "--cluster-enabled", "yes")
        replica = work.start("--cluster-enabled", "yes", "--replicaof", f"127.0.0.1 {port}")
        return ["--redis-url", f"redis://localhost:{port}/0", "--redis-ssl-url", f"rediss://localhost:{tls}/0",
                "--redis-cluster-nodes", "2"], {16379: port, 16380: replica, 27379: tls}
    port = work.start(*flags)
    replica = work.start("--replicaof", f"127.0.0.1 {port}")
    watchers = [sentinel(work, port) for _ in range(3)]
    options = ["--redis-url", f"redis://localhost:{port}/0", "--redis-mod-url", f"redis://localhost:{port}/0",
               "--redis-ssl-url", f"rediss://localhost:{tls}/0",
               "--sentinels", ",".join(f"localhost:{own}" for own in watchers)]
    return options, {6379: port, 6380: replica, 6666: tls, **dict(zip((26379, 26380, 26381), watchers))}


def sentinel(work, port):
    """Starts a Sentinel that watches the server."""
    need("redis-server")
    own = free_port()
    folder = work.folder / f"sentinel-{own}"
    folder.mkdir()
    conf = folder / "sentinel.conf"
    conf.write_text(f"port {own}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor {MASTER} 127.0.0.1 {port} 2\n")
    work.launch(["redis-server", conf, "--sentinel"], own)
    return own
