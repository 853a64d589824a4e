"""Two hundred damaged files of each format: an answer whose partitions sum, or one clear error; in time, and never anything else."""

from __future__ import annotations

import json
import pickle
import random
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headway.report.page import page
from headway.report.terminal import print_breakdown
from headway.spec.breakdown import to_json
from headway.spec.errors import TraceError
from headway.trace.explain import explain
from tests.trace.drawing import events
from tests.trace.read import nsys_file, test_flight, test_nccl_log, test_ncu, test_xplane, xspace_file
from tests.trace.read.test_nsys import DRAWING

NUM, MOST_S = 200, 2.0


def nsys(folder: Path) -> bytes:
    return nsys_file.write(folder / "whole.sqlite", nsys_file.tables(events(DRAWING))).read_bytes()


def recorder(folder: Path) -> bytes:
    return pickle.dumps(test_flight.dump(*map(test_flight.entry, range(20))), protocol=2)


def recorder_json(folder: Path) -> bytes:
    return json.dumps(test_flight.dump(*map(test_flight.entry, range(20)))).encode()


def xspace(folder: Path) -> bytes:
    return xspace_file.drawn(DRAWING)


def xspace_of_tpus(folder: Path) -> bytes:
    return xspace_file.space(test_xplane.host(), test_xplane.tpu(0), test_xplane.tpu(1))


def profiled(folder: Path) -> bytes:
    return test_ncu.wide(test_ncu.LAUNCHES).encode()


def profiled_long(folder: Path) -> bytes:
    return test_ncu.long(test_ncu.LAUNCHES).encode()


def logged(folder: Path) -> bytes:
    return "\n".join((*test_nccl_log.rank(0), *test_nccl_log.rank(1), *test_nccl_log.calls(0, 20))).encode()


FORMATS: dict[str, Callable[[Path], bytes]] = {
    "a.sqlite": nsys,
    "_dump_0": recorder,
    "rank_0.json": recorder_json,
    "a.xplane.pb": xspace,
    "b.xplane.pb": xspace_of_tpus,
    "raw.csv": profiled,
    "details.csv": profiled_long,
    "nccl.log": logged,
}


def damaged(data: bytes, random: random.Random) -> bytes:
    """Bytes flipped, the tail cut, a piece dropped or doubled, or a number blown up."""
    out = bytearray(data)
    at = random.randrange(len(out))
    size = random.choice((1, 4, 64, 1024))
    way = random.randrange(6)
    if way == 0:
        for _ in range(random.choice((1, 3, 30))):
            out[random.randrange(len(out))] = random.randrange(256)
    elif way == 1:
        del out[at:]
    elif way == 2:
        del out[at : at + size]
    elif way == 3:
        out[at:at] = out[at : at + size] * random.choice((1, 50))
    elif way == 4:
        out[at : at + size] = bytes([random.choice((0, 0x7F, 0x80, 0xFF))]) * size
    else:
        digits = [i for i, b in enumerate(out) if 0x30 <= b <= 0x39]
        for _ in range(3):
            i = random.choice(digits)
            out[i : i + 1] = random.choice((b"9" * 30, b"-", b"1e308", b"", b"nan", b"\0"))
    return bytes(out)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    whole = FORMATS[name](tmp_path)
    answers = 0
    for seed in range(NUM):
        path = tmp_path / name
        path.write_bytes(damaged(whole, random.Random(seed)))
        begin = time.process_time()
        try:
            found = explain([path])
        except TraceError as error:
            assert str(path) in str(error), seed
        else:
            answers += 1
            for row in found.ranks:
                for step in row.steps:
                    step.check()
            json.dumps(to_json(found), allow_nan=False)
            print_breakdown(found, Console(file=StringIO(), width=80))
            if seed % 10 == 0:
                page(breakdown=found)
        assert time.process_time() - begin < MOST_S, seed
    assert 0 < answers < NUM
