"""The launcher by itself: jail, adoption, moves, and everything that can go wrong in one (launcher_smoke.py)."""

import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.environ["FERRY_BIN"]
TINY = os.environ["FERRY_TINY"]


@pytest.mark.parametrize("options", [["--moves", "3"], ["--moves", "3", "--disk", "--load"]], ids=["plain", "disks"])
def test_launcher_survives(options):
    p = subprocess.run(
        [
            sys.executable,
            f"{HERE}/launcher_smoke.py",
            "--launcher",
            f"{BIN}/ferry-launcher",
            "--kernel",
            f"{TINY}/vmlinuz",
            "--initrd",
            f"{TINY}/initrd.gz",
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert p.returncode == 0, p.stdout[-6000:]
