"""The suite of redis-rs, from a source tree. It starts each of its servers itself."""

import os
import re

from common import CACHE, HERE, Missing, Part, Test, Work, call, need, source, tail

NAME, VERSION = "redis-rs", "1"
FEATURES = ("acl,aio,bloom,cache-aio,cluster-async,connection-manager,geospatial,hotkeys,json,script,serde/derive,"
            "streams,tokio-comp")
TARGETS = ("test_acl", "test_async", "test_basic", "test_bignum", "test_cache", "test_geospatial", "test_hotkeys",
           "test_module_bloom", "test_module_json", "test_script", "test_sentinel", "test_streams", "test_types",
           "test_cluster", "test_cluster_async")
SMOKE = ("test_basic", "test_streams", "test_module_json")
SECONDS = 3600


def parts(whole, server, left_out):
    """One run of cargo; the compiler needs minutes once."""
    del left_out
    tree = source(NAME, "redis/tests/test_basic.rs")
    need("cargo", otherwise=Missing)
    return [Part("all" if whole else "some", lambda: run(tree, TARGETS if whole else SMOKE, server))]


def run(tree, targets, server):
    """Runs some files of the suite, one test at a time: each has a server of its own."""
    target = CACHE / "clients" / NAME
    with Work(server) as work:
        data = work.folder / "data"
        data.mkdir()
        environment = dict(os.environ, CARGO_TARGET_DIR=str(target), REDISRS_SERVER_TYPE="tcp", KEDIS_DATA=str(data),
                           REDISRS_SERVER_BIN=str(HERE / "preload" / "server"), KEDIS_SERVER=str(server),
                           REDISRS_REDIS_JSON_PATH="built-in", REDISRS_REDIS_BLOOM_PATH="built-in")
        log = work.folder / "log"
        command = ["cargo", "test", "--no-fail-fast", "-p", "redis", "--no-default-features",
                   "--features", features(tree),
                   *[word for name in targets for word in ("--test", name)], "--", "--test-threads", "2"]
        status = call(command, log, SECONDS, cwd=tree, env=environment)
        tests = list(outcomes(log.read_text(encoding="utf-8", errors="replace")))
        if status is None or not tests:
            tests.append(Test("cargo runs to the end", "failed", tail(log)))
        return tests


def features(tree):
    """Those of the wanted features that this release has."""
    text = (tree / "redis" / "Cargo.toml").read_text(encoding="utf-8")
    found = set(re.findall(r"(?m)^([a-z0-9-]+) = \[", text.partition("[features]")[2].partition("\n[")[0]))
    return ",".join(name for name in FEATURES.split(",") if name.split("/")[0] in found or "/" in name)


def outcomes(text):
    """The tests that cargo reports, by file and name."""
    file, failures = "", dict(re.findall(r"(?ms)^---- (\S+) stdout ----\n(.*?)(?=^---- |^failures:)", text))
    for line in text.splitlines():
        head = re.match(r"\s+Running tests/(\w+)\.rs", line)
        if head:
            file = head[1]
        match = re.match(r"test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", line)
        if match:
            outcome = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}[match[2]]
            yield Test(f"{file}: {match[1]}", outcome, failures.get(match[1], ""))
