"""Where redis-py and the server come from."""

import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kedis"


def with_client_library():
    """Continues in an environment with redis-py, which is created if necessary."""
    try:
        import redis  # noqa: F401
    except ImportError:
        python = CACHE / "venv" / "bin" / "python3"
        if Path(sys.prefix) == CACHE / "venv":
            subprocess.run([python, "-m", "pip", "install", "-q", "redis"], check=True)
        elif not python.exists():
            subprocess.run([sys.executable, "-m", "venv", CACHE / "venv"], check=True)
        os.execv(python, [python, *sys.argv])


def default_server():
    """KEDIS_SERVER, or the release build in the target folder."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", CACHE / "target"))
    return os.environ.get("KEDIS_SERVER", str(target / "release" / "kedis-server"))
