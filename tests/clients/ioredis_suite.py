"""ioredis' suite, from a source tree."""

import json

import mocha
from common import Part, Work

NAME, VERSION = "ioredis", "6.0"
PACKAGES = ("chai", "chai-as-promised", "mocha", "server-destroy", "sinon", "ts-node", "typescript", "uuid")
TREE = ("lib", "test", "package.json", "package-lock.json", "tsconfig.json")
CHANGES = (
    # The suite leaves out what is newer than the server says that it is.
    ("test/helpers/util.ts", "const version = info.match(/^redis_version:(.+)$/m)?.[1]?.trim();",
     'const version = info && "8.10.0";'),
)
FILES = ("test/helpers/*.ts", "test/unit/**/*.ts", "test/functional/**/*.ts")
SMOKE = ("test/helpers/*.ts", "test/functional/commands/*.ts")
SECONDS, TEST_MS = 900, 30000


def parts(whole, server, left_out):
    """One process of mocha."""
    here = mocha.prepare(NAME, "test/functional", TREE, PACKAGES, CHANGES)
    return [Part("all" if whole else "some", lambda: run(here, FILES if whole else SMOKE, server, left_out))]


def run(here, files, server, left_out):
    """Runs some files of the suite."""
    with Work(server) as work:
        port = work.start("--enable-debug-command", "yes")
        tests = mocha.run(work, here, ["--no-experimental-strip-types", "--timeout", TEST_MS, *files], left_out,
                          SECONDS, NODE_ENV="test", TS_NODE_TRANSPILE_ONLY="true",
                          KEDIS_PORTS=json.dumps({6379: port}),
                          NODE_OPTIONS=f"--require {mocha.PRELOAD / 'ports.js'}")
        return tests + list(work.ended())
