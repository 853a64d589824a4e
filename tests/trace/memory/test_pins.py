"""Fragmentation: the segment that one small block holds is named with that block; cached, awaiting and pinned bytes are told apart."""

from __future__ import annotations

from headway.trace.memory.account import account
from headway.trace.read.snapshot import histories
from tests.trace.memory.allocator import MB, Recorder, frames

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
