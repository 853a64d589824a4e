"""One process at a time in a run folder, and a lock that dies with its holder."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.runtime import lock
from headway.spec.errors import RunError

HOLD = """
import sys
from pathlib import Path
from headway.runtime import lock
with lock.hold(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_folder_is_kept_as_long_as_its_holder_lives(tmp_path: Path, end: int) -> None:
    with holder(tmp_path) as other:
        with pytest.raises(RunError, match="another process has just started it"), lock.hold(tmp_path):
            pass
        other.send_signal(end)
    with lock.hold(tmp_path):
        pass


def test_a_lock_moves_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with holder(tmp_path / "a") as other:
        (tmp_path / "a").rename(tmp_path / "b")
        with pytest.raises(RunError), lock.hold(tmp_path / "b"):
            pass
        with lock.hold(tmp_path / "a"):
            assert not (tmp_path / "a").exists(), "a folder that is not there needs no keeping"
        other.kill()
