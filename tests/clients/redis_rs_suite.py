"""The suite of redis-rs, from a source tree, with either protocol. Its tests start their servers themselves."""

import json
import os
import re
import subprocess

from common import CACHE, HERE, Failure, Missing, Part, Test, Work, call, copied, need, source, tail

NAME, VERSION = "redis-rs", "1.6"
TREE = ("Cargo.toml", "Cargo.lock", "afl", "redis", "redis-test", "test-macros", "valkey")
FEATURES = ("acl,aio,bloom,cache-aio,cluster-async,connection-manager,geospatial,json,num-bigint,script,sentinel,"
            "serde/derive,streams,tokio-comp")
CLUSTER, VERSIONS = "redis-test/src/cluster.rs", "redis/tests/support/version.rs"
CHANGES = (
    # A cluster is one master that owns all slots, and needs nobody who tells it so.
    (CLUSTER, "num_nodes: 3,", "num_nodes: 1,"),
    (CLUSTER, 'process::Command::new("redis-cli")', 'process::Command::new("true")'),
    (CLUSTER, 'contents.contains("Cluster state changed: ok")', '!contents.is_empty()'),
    # The suite leaves out what is newer than the server says that it is, and what belongs to modules.
    (VERSIONS, 'redis::Cmd::new().arg("INFO").query(conn).unwrap();',
     'redis::Cmd::new().arg("INFO").query(conn).unwrap();\n        let info_response = info_response + '
     '"\\r\\nredis_version:8.10.0\\r\\nmodule:name=ReJSON,ver=81000\\r\\nmodule:name=bf,ver=81000\\r\\n";'),
)
TARGETS = ("test_acl", "test_async", "test_basic", "test_bignum", "test_cache", "test_cluster", "test_cluster_async",
           "test_credentials_provider_failures", "test_digest_utils", "test_geospatial", "test_hotkeys",
           "test_module_bloom", "test_module_json", "test_script", "test_sentinel", "test_streams", "test_types")
SMOKE = ("test_basic", "test_streams")
PROTOCOLS = {"": "RESP2", "RESP3 ": "RESP3"}
SKIPPED = "Skipping the test because"
BUILD_SECONDS, SECONDS = 3600, 600
# Its own configuration says so: many of its tests wait for a fixed time, which may be too short.
RETRIES = 4


def parts(whole, server, left_out):
    """Each of the suite's programs with each protocol, after they were compiled: that takes minutes once."""
    need("cargo", "redis-server", otherwise=Missing)
    there = source(NAME, "redis/tests/test_basic.rs")
    programs = build(copied(there, CACHE / "clients" / NAME / "tree", TREE, CHANGES, "*.rs"))
    chosen = TARGETS if whole else SMOKE
    protocols = PROTOCOLS if whole else {"": "RESP2"}
    return [Part(f"{prefix}{target}", lambda target=target, prefix=prefix: run(
        target, programs[target], prefix, server, left_out)) for prefix in protocols for target in chosen]


def build(tree):
    """The programs by their names."""
    command = ["cargo", "test", "--locked", "--no-run", "--package", "redis", "--no-default-features", "--features",
               FEATURES, "--message-format", "json", *(word for name in TARGETS for word in ("--test", name))]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(CACHE / "clients" / NAME / "target"), RUSTFLAGS="")
    done = subprocess.run(command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False, timeout=BUILD_SECONDS)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    programs = {message["target"]["name"]: message["executable"] for message in messages if message.get("executable")}
    if done.returncode != 0 or not set(TARGETS) <= set(programs):
        raise Failure(f"cargo does not build {', '.join(sorted(set(TARGETS) - set(programs)))}:\n{done.stderr[-3000:]}")
    return programs


def run(target, program, prefix, server, left_out):
    """Runs a program but for what is left out: one test after the other, since a panic in one of its threads is
    seen by all."""
    listed = subprocess.run([program, "--list", "--format", "terse"], stdout=subprocess.PIPE, text=True, check=True)
    names = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]
    called = {name: f"{prefix}{target}: {name}" for name in names}
    gone = [name for name in names if any(entry.matches(called[name]) for entry in left_out)]
    wanted = [name for name in names if name not in gone]
    tests = [Test(called[name], "left out") for name in gone]
    if not wanted:
        return tests
    with Work(server) as work:
        data = work.folder / "data"
        data.mkdir()
        environment = dict(os.environ, REDISRS_SERVER_TYPE="tcp", PROTOCOL=PROTOCOLS[prefix], KEDIS_DATA=str(data),
                           REDISRS_SERVER_BIN=str(HERE / "preload" / "server"), KEDIS_SERVER=str(server),
                           REDISRS_REDIS_JSON_PATH="built-in", REDISRS_REDIS_BLOOM_PATH="built-in",
                           TMPDIR=str(work.folder), RUST_BACKTRACE="0")
        found = {}
        for attempt in range(1 + RETRIES):
            # A panic is seen by the next test of the same process, too: what has failed runs by itself.
            for names in [[name] for name in wanted] if attempt else [wanted]:
                found.update(attempted(program, names, called, work.folder / "log", environment))
            wanted = [name for name in wanted if found[name].outcome == "failed"]
            if not wanted:
                break
    return tests + list(found.values())


def attempted(program, names, called, log, environment):
    """Runs some tests of a program, each after the other; what came of each name."""
    log.unlink(missing_ok=True)
    status = call([program, "--exact", "--test-threads", "1", "--show-output", *names], log, SECONDS,
                  env=environment, cwd=log.parent)
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    seen = {test.name: test for test in outcomes(text, called)}
    why = f"not done after {SECONDS} s" if status is None else f"ended with {status}"
    return {name: seen.get(called[name]) or Test(called[name], "failed", f"{why}\n{tail(log)}") for name in names}


def outcomes(text, called):
    """The tests that a program reports."""
    output = dict(re.findall(r"(?ms)^---- (\S+) stdout ----\n(.*?)(?=^---- |^failures:|^successes:)", text))
    # A test may print between its name and its outcome.
    told = re.split(r"(?m)^(?:successes|failures):$", text)[0]
    for name, rest in re.findall(r"(?ms)^test (\S+)(?: - should panic)? \.\.\. (.*?)(?=^test |\Z)", told):
        ends = re.findall(r"(?m)(ok|FAILED|ignored)$", rest)
        if name in called and ends:
            shown = output.get(name, "")
            skips = [line for line in shown.splitlines() if SKIPPED in line]
            kind = {"ok": "skipped" if skips else "passed", "FAILED": "failed", "ignored": "skipped"}[ends[-1]]
            yield Test(called[name], kind, skips[0] if skips else shown)
