"""Suites that run in mocha: a copy of the source tree with packages, and the run."""

import json
import os
import shutil

from common import CACHE, HERE, Failure, Missing, Test, call, install, need, pattern, source, tail

PRELOAD = HERE / "preload"


def prepare(name, wanted, tree, packages, changes, build=()):
    """A copy of the tree in the cache folder with the packages that its tests need.

    `tree` are the files and folders to copy, `changes` texts in a file that are replaced,
    `build` a command that compiles the copy.
    """
    there = source(name, wanted)
    need("node", "npm", otherwise=Missing)
    here = CACHE / "clients" / name
    stamp, state = here / "kedis-state", state_of(there, tree, packages, changes)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == state:
        return here
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    for part in tree:
        if (there / part).is_dir():
            shutil.copytree(there / part, here / part, ignore=shutil.ignore_patterns("node_modules", "dist"))
        else:
            shutil.copy(there / part, here / part)
    package = json.loads((here / "package.json").read_text(encoding="utf-8"))
    package["devDependencies"] = {name: version for name, version in package["devDependencies"].items()
                                  if name in packages or name.startswith("@types/")}
    (here / "package.json").write_text(json.dumps(package), encoding="utf-8")
    for file, old, new in changes:
        text = (here / file).read_text(encoding="utf-8")
        if old not in text:
            raise Failure(f"{file} does not have what the runner replaces: {old}")
        (here / file).write_text(text.replace(old, new), encoding="utf-8")
    install(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=here)
    if build:
        install(build, cwd=here)
    stamp.write_text(state, encoding="utf-8")
    return here


def state_of(there, tree, packages, changes):
    """What a copy depends on: another state of the tree needs another copy."""
    files = [file for part in tree for file in ([there / part] if (there / part).is_file() else
                                                 sorted((there / part).rglob("*.ts")))]
    return json.dumps([[str(file), file.stat().st_mtime, file.stat().st_size] for file in files]
                      + [list(packages), [list(change) for change in changes]])


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
