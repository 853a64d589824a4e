"""Synthetic but realistic inputs: a breakdown of two ranks on a slow loader and a slow peer, and the log of a run."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from headway.spec.breakdown import Breakdown, Health, RankBreakdown, StepBreakdown
from headway.spec.cliff import Cliff
from headway.spec.finding import Finding

BUCKET_US = {  # mean microseconds of a step of a small video model on two H200
    "compute.gemm": 61_200,
    "compute.attention": 34_800,
    "compute.norm": 7_900,
    "compute.elementwise": 12_400,
    "compute.reduce": 1_300,
    "compute.optimizer": 5_600,
    "compute.copy": 2_100,
    "comm.all_gather.dp_shard.transfer": 6_300,
    "comm.all_gather.dp_shard.wait": 2_200,
    "comm.reduce_scatter.dp_shard.transfer": 9_100,
    "comm.reduce_scatter.dp_shard.wait": 11_700,
    "comm.all_reduce.world.unsplit": 400,
    "copy.h2d": 1_500,
    "idle.input": 14_300,
    "idle.launch": 3_600,
    "idle.sync": 1_900,
    "idle.unknown": 350,
}
PHASE_SHARES = {
    "input": 0.09, "forward": 0.29, "backward": 0.46, "reduce": 0.08, "clip": 0.01, "optimizer": 0.05, "ema": 0.01, "other": 0.01,
}  # fmt: skip
MODULE_SHARES = {f"blocks.{i}": 0.075 for i in range(10)} | {"": 0.15, "patch_embed": 0.03, "final_layer": 0.05, "time_embed": 0.02}


def split(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """`total` by `shares`, exactly: the last name takes what rounding leaves."""
    whole = sum(shares.values())
    parts = {name: int(total * s / whole) for name, s in shares.items()}
    last = list(parts)[-1]
    return parts | {last: parts[last] + total - sum(parts.values())}


def step(rank: int, number: int, rng: np.random.Generator) -> StepBreakdown:
    """One step; number 100 warms up, step 112 waits for a late batch, rank 1 is 6 % slower at matrix products."""
    buckets = {name: round(1000 * us * math.exp(rng.normal(0, 0.06))) for name, us in BUCKET_US.items()}
    if rank == 1:
        buckets["compute.gemm"] = round(buckets["compute.gemm"] * 1.06)
        buckets["comm.reduce_scatter.dp_shard.wait"] //= 6
    if number == 112:
        buckets["idle.input"] += 96_000_000
    if number == 100:
        buckets["idle.compile"] = 41_000_000
    wall = sum(buckets.values())
    return StepBreakdown(
        step=number,
        start_ns=1_700_000_000_000_000_000 + number * 180_000_000,
        wall_ns=wall,
        buckets=buckets,
        phases=split(wall, PHASE_SHARES),
        modules=split(wall, MODULE_SHARES),
        hidden_comm_by_axis_ns={"dp_shard": 21_400_000 + 1000 * number},
        comm=(
            {"collective": "all_gather", "axis": "dp_shard", "count": 22, "bytes": 1 << 30, "busy_ns": 24_000_000, "bus_bytes_s": 2.1e11},
            {"collective": "reduce_scatter", "axis": "dp_shard", "count": 22, "bytes": 1 << 30, "busy_ns": 33_000_000, "bus_bytes_s": None},
        ),
        concurrency=1.02,
        num_kernels=4180,
        mfu=0.412 * 176_650_000 / wall,
    )


def findings() -> tuple[Finding, ...]:
    return (
        Finding(
            what="The training thread decodes images itself while the device waits",
            bucket="idle.input",
            recoverable_ns=18_900_000,
            confidence=0.9,
            evidence=("rank 0 step 112: idle.input 110,312,544 ns before aten::copy_", "data.workers is 0"),
            action="Decode ahead in threads: --data.workers 4",
            patch={"data.workers": 4},
        ),
        Finding(
            what="Rank 1 is 6 % slower at matrix products, the others wait for it in the gradient reduction",
            bucket="comm.reduce_scatter.dp_shard.wait",
            recoverable_ns=9_800_000,
            confidence=0.75,
            evidence=("gemm: 65.1 ms on rank 1, 61.3 ms on rank 0, 20 of 20 steps",),
            action="Check clocks and temperature of the device of rank 1",
        ),
        Finding(
            what="A host read of the loss each step blocks on the device",
            bucket="idle.sync",
            recoverable_ns=1_700_000,
            confidence=0.6,
            action="Read scalars once a log period",
        ),
    )


def example(num_ranks: int = 2, num_steps: int = 20, *, first: int = 100) -> Breakdown:
    """A breakdown of `num_steps` steps of `num_ranks` ranks."""
    rng = np.random.default_rng(7)
    ranks = tuple(
        RankBreakdown(
            rank=r,
            device=f"cuda:{r % 8}",
            steps=tuple(step(r, first + k, rng) for k in range(num_steps)),
            source=f"traces/steps000100-000119.rank{r}.json.gz",
        )
        for r in range(num_ranks)
    )
    health = (
        Health(what="unlinked", count=12, rank=1, affects="idle causes", text="device work whose launch is not in the trace"),
        Health(what="clock", count=1, text="clocks of two hosts aligned by 214 collectives, residual 8 us"),
    )
    summary = {"samples_s": 1448.3, "warmup_steps": [first]}
    return Breakdown(ranks=ranks, health=health, summary=summary, findings=findings(), cliffs=cliffs())


def mixed() -> Breakdown:
    """Forty steps known by their phases, five of them profiled."""
    full = example(1, 5, first=120).ranks[0].steps
    rng = np.random.default_rng(3)
    plain = []
    for number in range(100, 140):
        wall = round(176e6 * math.exp(rng.normal(0, 0.05)))
        start = full[0].start_ns + (number - 120) * 180_000_000
        plain.append(StepBreakdown(step=number, start_ns=start, wall_ns=wall, buckets={}, phases=split(wall, PHASE_SHARES)))
    steps = {s.step: s for s in plain} | {s.step: s for s in full}
    return Breakdown(ranks=(RankBreakdown(rank=0, device="cuda:0", steps=tuple(steps.values())),))


def logs(num: int = 300, batch: int = 256, every: int = 10) -> list[dict[str, Any]]:
    """The log events of a run: a falling loss, one spike, one loss that is not finite, a warm-up of the learning rate."""
    rng = np.random.default_rng(11)
    out = []
    for k in range(1, num + 1):
        loss = 0.9 * math.exp(-k / 40) + 0.18 + 0.012 * rng.normal() + (0.5 if k == 170 else 0.0)
        spread = {"0.00-0.25": 1.45, "0.25-0.50": 0.95, "0.50-0.75": 0.7, "0.75-1.00": 0.9}
        out.append(
            {
                "kind": "log",
                "time_ns": 1_700_000_000_000_000_000 + k * 1_800_000_000,
                "step": k * every,
                "samples": k * every * batch,
                "loss": float("nan") if k == 220 else loss,
                "grad_norm": 0.4 + 0.2 * abs(rng.normal()) + 3 / k,
                "lr": 1e-3 * min(1.0, k / 20) * (0.5 + 0.5 * math.cos(math.pi * k / num)),
                "samples_s": 1450 * (1 + 0.02 * rng.normal()) * (0.3 if k == 1 else 1.0),
                "mfu": 0.412 * (1 + 0.02 * rng.normal()) * (0.3 if k == 1 else 1.0),
                "loss_by_t": [loss * s * (1 + 0.03 * rng.normal()) for s in spread.values()],
                "memory_bytes": (31 << 30) + (min(k, 30) << 26),
            }
        )
    return out


def run() -> dict[str, Any]:
    """A run.json, cut to what a page reads."""
    return {
        "schema": "headway.run/1",
        "spec": {
            "name": "digits-video", "seed": 0, "global_batch": 256, "accumulate": 1, "samples": 768_000,
            "model": {"name": "dit", "depth": 10, "width": 1024, "heads": 16, "patch": 2},
            "data": {"name": "folder", "path": "photos", "size": 64, "channels": 3},
            "mesh": {"pp": 1, "dp_replicate": 1, "dp_shard": 2, "tp": 1}, "precision": {"compute": "bf16", "reduce": "fp32"},
            "optim": {"lr": 1e-3, "warmup": 51_200},
        },
        "info": {
            "num_samples": 1_281_167, "num_classes": 1000, "flops_per_sample": 1.2e12, "num_parameters": 184_320_512,
            "peak_flops": 7.2e14, "peak_source": "measured, bf16 matrix product of 8192", "device": "NVIDIA H200", "world": 2,
            "versions": {"torch": "2.13.0", "python": "3.11.9", "headway": "0.1.0"}, "git": "3f2c1ab",
        },
    }  # fmt: skip


def png(width: int = 240, height: int = 120) -> bytes:
    """A small picture: a grid of grey gradients."""
    y, x = np.mgrid[:height, :width]
    pixels = ((x * 5 + y * 3) % 256 * ((x // 30 + y // 30) % 2)).astype(np.uint8)
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


NAMES = ["compute", "compute.gemm", "compute.norm", "comm.all_reduce.dp.wait", "copy.h2d", "idle.input", "strange", "idle.<b>"]


def cliffs() -> tuple[Cliff, ...]:
    """Two cliffs of a run."""
    return (
        Cliff(
            kind="spike", cause="checkpoint", what="3 steps take 410.0 ms instead of 88.0 ms: a checkpoint is written", rank=0,
            steps=(50, 100, 150), before_ns=88_000_000, after_ns=410_000_000, lost_ns=966_000_000, share=0.97,
            evidence=("rank 0, step 100: 412.0 ms; checkpoint +318.0 of +322.0 ms", "every 50 steps"), action="Save beside the training.",
        ),
        Cliff(
            kind="shift", cause="input", what="from step 180 on a step takes 120.0 ms instead of 88.0 ms: they wait for input", rank=1,
            steps=(180,), before_ns=88_000_000, after_ns=120_000_000, lost_ns=640_000_000, share=0.9,
            evidence=("rank 1, steps 180 to 199; input +31.0 of +32.0 ms",), action="Decode further ahead.",
        ),
    )  # fmt: skip


@st.composite
def breakdowns(draw: st.DrawFn) -> Breakdown:
    """Random breakdowns: ranks that miss steps, steps without buckets, phases or modules, zero wall times, odd names."""
    ranks = []
    for rank in range(draw(st.integers(0, 7))):
        steps = []
        for number in sorted(draw(st.sets(st.integers(0, 60), max_size=12))):
            wall = draw(st.integers(0, 10**12))
            parts = {}
            for kind, names in (("buckets", NAMES), ("phases", ["forward", "input", "mine"]), ("modules", ["", "a", "b.c"])):
                chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=5))
                cuts = sorted(draw(st.lists(st.integers(0, wall), min_size=max(0, len(chosen) - 1), max_size=max(0, len(chosen) - 1))))
                parts[kind] = dict(zip(chosen, (b - a for a, b in zip([0, *cuts], [*cuts, wall], strict=True)), strict=False))
            steps.append(StepBreakdown(step=number, start_ns=number, wall_ns=wall, **parts))
            steps[-1].check()
        ranks.append(RankBreakdown(rank=rank // 2, device=f"cuda:{rank}", steps=tuple(steps)))
    return Breakdown(ranks=tuple(ranks))
