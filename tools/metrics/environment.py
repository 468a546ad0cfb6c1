"""The Python environment of the tools that draw."""

import os
import subprocess
import sys

from parts import CACHE

VENV = CACHE / "venv-draw"
PACKAGES = ["matplotlib>=3.8,<4", "pillow"]


def with_matplotlib():
    """Goes on in an environment that has it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        python = VENV / "bin/python3"
        if sys.prefix == str(VENV):
            sys.exit(f"matplotlib is missing in {VENV}")
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES], check=True)
        os.execv(python, [str(python), *sys.argv])
