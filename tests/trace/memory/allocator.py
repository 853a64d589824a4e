"""A caching allocator that records itself as torch's does, so that the truth is known: segments, splitting, merging, several streams,
expandable segments, a ring buffer; `Recorder.snapshot()` is what torch.cuda.memory._snapshot() would return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KB, MB = 1 << 10, 1 << 20
PAGE = 2 * MB


@dataclass
class Block:
    address: int
    size: int
    segment: int
    requested: int = 0
    state: str = "inactive"
    frames: list[dict[str, Any]] = field(default_factory=list)
    tag: str = ""


@dataclass
class Truth:
    """The state after one event."""

    reserved: int
    allocated: int
    tags: dict[str, int]
    cached: int = 0  # in pieces with nothing alive or awaiting in them
    awaiting: int = 0


def frames(*lines: str) -> list[dict[str, Any]]:
    """'model.py:12 forward' -> frames, innermost first."""
    out = []
    for text in lines:
        place, _, name = text.partition(" ")
        file, _, line = place.rpartition(":")
        out.append({"filename": file, "line": int(line), "name": name})
    return out


class Recorder:
    """Records every event; `keep` is the ring buffer's length, `tag` of a block is its part as the test knows it."""

    def __init__(self, *, keep: int | None = None, expandable: bool = False, timed: bool = True, split: bool = True) -> None:
        self.keep, self.expandable, self.timed, self.split = keep, expandable, timed, split
        self.holes: list[tuple[int, int]] = []
        base = 0x7F00_0000_0000
        self.next, self.clock = base, 1_700_000_000_000_000
        self.segments: dict[int, int] = {}  # address -> size
        self.blocks: list[Block] = []  # sorted by address; gaps of nothing between segments
        self.events: list[dict[str, Any]] = []
        self.truth: list[Truth] = [Truth(0, 0, {})]
        self.recording = True

    # ---- what a program does ----

    def alloc(self, size: int, stack: list[dict[str, Any]] | None = None, tag: str = "", stream: int = 0) -> Block:
        size_taken = max(512, -(-size // 512) * 512)
        free = [b for b in self.blocks if b.state == "inactive" and b.size >= size_taken]
        block = min(free, key=lambda b: (b.size, b.address)) if free else self._grow(size_taken, stack, stream)
        rest = block.size - size_taken
        if rest >= (512 if self.split or self._small(block) else MB + 1):  # torch leaves less than 1 MiB of a large one with the block
            block.size = size_taken
            self._insert(Block(block.address + size_taken, rest, block.segment))
        block.requested, block.state, block.frames, block.tag = size, "active_allocated", stack or [], tag
        self._record("alloc", block.address, size, stack, stream)
        return block

    def free(self, block: Block, *, waits: bool = False, stack: list[dict[str, Any]] | None = None) -> None:
        block.state = "active_pending_free"
        self._record("free_requested", block.address, block.requested, stack)
        if not waits:
            self.complete(block)

    def complete(self, block: Block) -> None:
        block.state = "inactive"
        address, requested = block.address, block.requested
        self._merge(block)
        self._record("free_completed", address, requested, None)

    def empty_cache(self) -> None:
        if self.expandable:
            for block in [b for b in self.blocks if b.state == "inactive"]:
                first, last = -(-block.address // PAGE) * PAGE, (block.address + block.size) // PAGE * PAGE
                if last > first:
                    self._unmap(block, first, last)
            return
        for address, size in list(self.segments.items()):
            mine = [b for b in self.blocks if b.segment == address]
            if len(mine) == 1 and mine[0].state == "inactive":
                self.blocks.remove(mine[0])
                del self.segments[address]
                self._record("segment_free", address, size, None)

    # ---- what it is made of ----

    def _small(self, block: Block) -> bool:
        return not self.expandable and self.segments[block.segment] == 2 * MB

    def _grow(self, size: int, stack: list[dict[str, Any]] | None, stream: int) -> Block:
        total = 2 * MB if size <= MB else 20 * MB if size < 10 * MB else -(-size // PAGE) * PAGE
        if self.expandable:
            total = -(-size // PAGE) * PAGE
        hole = next((h for h in self.holes if h[1] - h[0] >= total), None)
        if hole is not None:  # what was unmapped is mapped again
            self.holes.remove(hole)
            address = hole[0]
            self.holes += [(address + total, hole[1])] if hole[1] > address + total else []
        else:
            address = self.next
            self.next += total + (0 if self.expandable else PAGE)
        self.segments[address] = total
        block = Block(address, total, address)
        self._insert(block)
        if self.expandable:  # it joins the free block before it, if one ends here
            block = self._merge(block)
        self._record("segment_map" if self.expandable else "segment_alloc", address, total, stack, stream)
        return block

    def _unmap(self, block: Block, first: int, last: int) -> None:
        self.blocks.remove(block)
        if first > block.address:
            self._insert(Block(block.address, first - block.address, block.segment))
        if last < block.address + block.size:
            self._insert(Block(last, block.address + block.size - last, block.segment))
        pieces: dict[int, int] = {}
        for address, size in self.segments.items():
            if address < first:
                pieces[address] = min(size, first - address)
            if address + size > last:
                start = max(address, last)
                pieces[start] = address + size - start
        self.segments = dict(sorted(pieces.items()))
        self.holes.append((first, last))
        self._record("segment_unmap", first, last - first, None)

    def _insert(self, block: Block) -> None:
        self.blocks.append(block)
        self.blocks.sort(key=lambda b: b.address)

    def _merge(self, block: Block) -> Block:
        at = self.blocks.index(block)
        for other in self.blocks[at + 1 : at + 2] + self.blocks[max(0, at - 1) : at]:
            touching = other.address in (block.address + block.size, block.address - other.size)
            if other.state == "inactive" and touching and (self.expandable or other.segment == block.segment):
                self.blocks.remove(other)
                block.address, block.size = min(block.address, other.address), block.size + other.size
                block.segment = min(block.segment, other.segment)
        return block

    def _record(self, action: str, address: int, size: int, stack: list[dict[str, Any]] | None, stream: int = 0) -> None:
        self.clock += 10
        live = [b for b in self.blocks if b.state == "active_allocated"]
        tags: dict[str, int] = {}
        for b in live:
            tags[b.tag] = tags.get(b.tag, 0) + b.size
        taken = [b for b in self.blocks if b.state != "inactive"]
        pieces = self._pieces().items()
        cached = sum(n for at, n in pieces if not any(at <= b.address < at + n for b in taken))
        waits = sum(b.size for b in taken if b.state == "active_pending_free")
        now = Truth(sum(self.segments.values()), sum(b.size for b in live), tags, cached, waits)
        if not self.recording:
            self.truth = [now]
            return
        entry = {"action": action, "addr": address, "size": size, "stream": stream}
        entry |= {"frames": stack} if stack is not None else {}
        entry |= {"time_us": self.clock} if self.timed else {}
        self.events.append(entry)
        self.truth.append(now)
        if self.keep is not None and len(self.events) > self.keep:
            del self.events[0], self.truth[0]

    def snapshot(self, **more: Any) -> dict[str, Any]:
        segments = []
        starts = self._pieces()
        for address, size in starts.items():
            mine = [b for b in self.blocks if address <= b.address < address + size]
            blocks = [
                {"address": b.address, "size": b.size, "requested_size": b.requested, "state": b.state, "frames": b.frames if b.tag else []}
                for b in mine
            ]
            segments.append(
                {
                    "device": 0, "address": address, "total_size": size, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                    "is_expandable": self.expandable, "frames": [], "blocks": blocks,
                }
            )  # fmt: skip
        return {"segments": segments, "device_traces": [self.events], "allocator_settings": {"expandable_segments": self.expandable}} | more

    def _pieces(self) -> dict[int, int]:
        """Segments; what touches of an expandable one is one piece."""
        if not self.expandable:
            return self.segments
        out: dict[int, int] = {}
        for address, size in sorted(self.segments.items()):
            last = next(reversed(out), None)
            if last is not None and last + out[last] == address:
                out[last] += size
            else:
                out[address] = size
        return out
