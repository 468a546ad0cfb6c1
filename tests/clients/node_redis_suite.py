"""node-redis' suite, from a source tree."""

import os

import mocha
from common import Part, Work, free_port

NAME, VERSION = "node-redis", "6.2"
PACKAGES = ("mocha", "tsx", "ts-node", "typescript")
TREE = ("packages", "package.json", "package-lock.json", "tsconfig.base.json", "tsconfig.json")
SERVERS = "packages/test-utils/lib/dockers.ts"
CHANGES = (
    (SERVERS, "let i = 6379;", "let i = Number(process.env.KEDIS_FIRST_PORT);"),
    # A cluster is one master that owns all slots.
    (SERVERS, "dockersConfig.numberOfMasters ?? 2", "1"),
    (SERVERS, "await master.client.clusterAddSlots(range);", ""),
    (SERVERS, "if (!dockersConfig.numberOfReplicas) return [master];", "return [master];"),
)
FOLDERS = {"client": "client", "json": "json", "bloom": "bloom"}
SMOKE = {"client": "./lib/commands/[A-H]*.spec.ts"}
SECONDS, TEST_MS = 1800, 30000


def parts(whole, server, left_out):
    """Each package in a process of mocha."""
    here = mocha.prepare(NAME, "packages/client/lib", TREE, PACKAGES, CHANGES, ["npm", "run", "build"])
    chosen = dict.fromkeys(FOLDERS, "./lib/**/*.spec.ts") if whole else SMOKE
    return [Part(name, lambda name=name, files=files: run(here, name, files, server, left_out))
            for name, files in chosen.items()]


def run(here, package, files, server, left_out):
    """Runs some files of a package."""
    with Work(server) as work:
        running = work.folder / "docker"
        running.mkdir()
        return mocha.run(work, here / "packages" / package, ["-r", "tsx", "--timeout", TEST_MS, files], left_out,
                         SECONDS, KEDIS_SERVER=server, KEDIS_DOCKER=str(running),
                         KEDIS_FIRST_PORT=str(free_port()), PATH=f"{mocha.PRELOAD}:{os.environ['PATH']}")
