"""Suites that run in mocha: a copy of the source tree with packages, and the run."""

import json
import os

from common import CACHE, HERE, Missing, Test, call, copied, install, need, pattern, source, tail

PRELOAD = HERE / "preload"


def prepare(name, wanted, tree, packages, changes, build=()):
    """A copy of the tree in the cache folder with the packages that its tests need.

    `tree` are the files and folders to copy, `changes` texts in a file that are replaced,
    `build` a command that compiles the copy.
    """
    there = source(name, wanted)
    need("node", "npm", otherwise=Missing)
    here = CACHE / "clients" / name
    copied(there, here, tree, changes, "*.ts", packages)
    stamp = here / "kedis-installed"
    if stamp.exists():
        return here
    package = json.loads((here / "package.json").read_text(encoding="utf-8"))
    package["devDependencies"] = {name: version for name, version in package["devDependencies"].items()
                                  if name in packages or name.startswith("@types/")}
    (here / "package.json").write_text(json.dumps(package), encoding="utf-8")
    install(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=here)
    if build:
        install(build, cwd=here)
    stamp.touch()
    return here


def run(work, here, arguments, left_out, seconds, **variables):
    """Runs mocha in the folder; the tests."""
    results, log = work.folder / "results", work.folder / "mocha"
    environment = dict(os.environ, KEDIS_RESULTS=str(results), TMPDIR=str(work.folder), **variables,
                       KEDIS_LEFT_OUT=json.dumps([pattern(entry.test) for entry in left_out]))
    status = call(["npx", "--no-install", "mocha", "--exit", "--reporter", PRELOAD / "reporter.js", *arguments],
                  log, seconds, cwd=here, env=environment)
    tests = []
    if results.exists():
        tests = [Test(*json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]
    # Otherwise the status is the number of failed tests.
    if status is None or not tests:
        tests.append(Test("mocha runs to the end", "failed", tail(log)))
    return tests
