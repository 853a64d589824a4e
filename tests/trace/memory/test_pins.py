"""Fragmentation: the segment that one small block holds is named with that block; cached, awaiting and pinned bytes are told apart."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headway.trace.memory.account import account
from headway.trace.memory.layout import layout
from headway.trace.memory.lives import lives
from headway.trace.read.snapshot import histories
from tests.trace.memory.allocator import MB, Recorder, frames
from tests.trace.memory.test_exact import PROGRAM, play

KEEPER = frames("train.py:17 keep", "train.py:90 main")
PASSING = frames("model.py:4 forward", "torch/nn/modules/module.py:1 _call_impl")


def planted() -> Recorder:
    """Two segments of 20 MiB, one held by 1 MiB of train.py:17; then 40 MiB, which fit nowhere."""
    recorder = Recorder()
    first = recorder.alloc(9 * MB, PASSING, "a")
    recorder.alloc(2 * MB, KEEPER, "k")
    second = recorder.alloc(9 * MB, PASSING, "a")
    third = recorder.alloc(20 * MB, PASSING, "a")
    for block in (first, second, third):
        recorder.free(block)
    recorder.alloc(40 * MB, PASSING, "a")
    return recorder


def test_the_block_that_pins_is_named() -> None:
    (history,) = histories(planted().snapshot(), "test")
    found = account(history, 0)
    assert found.reserved_bytes == 80 * MB
    assert found.allocated_bytes == 42 * MB
    assert found.parts == {
        "activations.model:4": 40 * MB,
        "fragmentation.cached": 20 * MB,
        "fragmentation.pinned": 18 * MB,
        "unknown.frames": 2 * MB,
    }
    (pin,) = found.pins
    assert (pin.segment_bytes, pin.free_bytes, pin.largest_free_bytes) == (20 * MB, 18 * MB, 9 * MB)
    assert [b.where for b in pin.blocks] == ["train.py:17 keep"]
    saving = next(s for s in found.savings if s.part == "fragmentation")
    assert saving.saves_bytes == 38 * MB
    assert "train.py:17 keep" in saving.evidence[0]
    assert "expandable_segments:True" in saving.action


def test_what_awaits_another_stream_is_neither_allocated_nor_free() -> None:
    recorder = Recorder()
    block = recorder.alloc(8 * MB, PASSING, "a")
    recorder.alloc(12 * MB, PASSING, "a")
    recorder.free(block, waits=True)
    recorder.alloc(30 * MB, PASSING, "a")
    (history,) = histories(recorder.snapshot(), "test")
    found = account(history, 0)
    assert found.parts == {"activations.model:4": 42 * MB, "fragmentation.awaiting": 8 * MB}


def test_segments_that_were_given_back_are_not_in_the_layout_and_those_to_come_neither() -> None:
    recorder = Recorder()
    big = recorder.alloc(100 * MB, PASSING, "a")
    recorder.alloc(2 * MB, KEEPER, "k")
    recorder.free(big)
    recorder.empty_cache()
    recorder.alloc(30 * MB, PASSING, "a")
    (history,) = histories(recorder.snapshot(), "test")
    found = account(history, 0)
    assert (found.reserved_bytes, found.num_segments) == (120 * MB, 2)
    assert [p.free_bytes for p in found.pins] == [18 * MB]


def test_neighbours_in_the_address_space_stay_two_segments_and_expandable_ones_are_one() -> None:
    def snapshot(expandable: bool) -> dict[str, object]:
        blocks = [[{"size": 2 * MB, "state": "active_allocated"}], [{"size": 2 * MB, "state": "inactive"}]]
        segments = [
            {"address": (1 << 40) + i * 2 * MB, "total_size": 2 * MB, "is_expandable": expandable, "blocks": b}
            for i, b in enumerate(blocks)
        ]
        return {"segments": segments, "device_traces": []}

    apart, joined = (account(histories(snapshot(e), "test")[0], 0) for e in (False, True))
    assert (apart.num_segments, joined.num_segments) == (2, 1)
    assert apart.parts["fragmentation.cached"] == joined.parts["fragmentation.pinned"] == 2 * MB


@given(PROGRAM, st.booleans(), st.integers(0, 200))
def test_the_layout_of_any_moment_is_that_of_the_program_up_to_it(program: list[tuple[Any, ...]], expandable: bool, at: int) -> None:
    whole = play(program, expandable=expandable)
    found = histories(whole.snapshot(), "test")
    moments = [0]
    for i in range(len(program)):
        moments.append(len(play(program[: i + 1], expandable=expandable).events))
    cut = at % len(moments)
    then = play(program[:cut], expandable=expandable)
    if not found:
        return
    of = lives(found[0])
    plan = layout(found[0], of, moments[cut], of.at(moments[cut]), of.awaiting(moments[cut]))
    pieces = then._pieces()
    assert dict(zip(plan.start.tolist(), (plan.end - plan.start).tolist(), strict=True)) == pieces
    for start, end, used, live, largest in zip(plan.start, plan.end, plan.used, plan.live, plan.largest, strict=True):
        mine = [b for b in then.blocks if start <= b.address < end]
        assert used == sum(b.size for b in mine if b.state != "inactive")
        assert live == sum(b.size for b in mine if b.state == "active_allocated")
        assert largest == max((b.size for b in mine if b.state == "inactive"), default=0)
    assert plan.strays == 0


@given(PROGRAM, st.integers(1, 9))
def test_whatever_runs_beside_it_a_planted_pin_is_named(program: list[tuple[Any, ...]], keep: int) -> None:
    recorder = play(program)
    for block in [b for b in recorder.blocks if b.state == "active_allocated"]:
        recorder.free(block)
    for block in [b for b in recorder.blocks if b.state == "active_pending_free"]:
        recorder.complete(block)
    recorder.empty_cache()
    passing = [recorder.alloc(30 * MB, PASSING, "a") for _ in range(keep)]
    for block in passing:
        recorder.free(block)
        recorder.alloc(1 * MB, KEEPER, "k")  # the first MiB of 30 is kept, so nothing of 30 MiB fits any more
    for _ in range(keep + 5):
        recorder.alloc(64 * MB, PASSING, "a")
    (history,) = histories(recorder.snapshot(), "test")
    found = account(history, 0)
    planted = [p for p in found.pins if p.segment_bytes == 30 * MB]
    assert planted and all([b.where for b in p.blocks] == ["train.py:17 keep"] for p in planted)
    assert all(p.free_bytes + p.blocks[0].num_bytes == 30 * MB for p in planted)


def test_what_is_free_in_the_pool_of_a_graph_is_no_waste() -> None:
    data = planted().snapshot()
    for segment in data["segments"][:2]:
        segment["segment_pool_id"] = (7, 0)
    (history,) = histories(data, "test")
    found = account(history, 0)
    assert found.parts["fragmentation.private"] == 38 * MB
    assert not found.pins
    assert not any(s.part == "fragmentation" for s in found.savings)
