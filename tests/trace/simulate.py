"""A small cluster simulated: Kineto files of n ranks whose times obey launches, streams, dependencies and collectives.

    run = simulate(Cluster(mesh={"dp": 2, "tp": 2}, slow_compute={3: 1.2}, offset_ns={1: 50_000}))
    paths = write(run, tmp_path)          # a file a rank, each in its own clock
    run.step_ns                           # true time of a step; change one field of Cluster, simulate again: the true gain

Each rank has one host thread that issues work, a stream for compute and one for each axis. A step: load a batch; forward of each
layer (`kernels` products); backward of each (twice as many); the norm of the gradients; the optimizer; where `syncs` is set, the host
waits for the device. Axes of the mesh, outermost first, by name: `pp` cuts the layers into stages, with send and recv between them;
`tp` all-reduces activations after each layer and compute waits for it; `dp_shard` all-gathers the weights of a layer and
reduce-scatters its gradients; any other axis all-reduces gradients. With `overlap` gradients move beside the backward of the layers
before, and weights one layer ahead; without it compute waits for each.

A collective begins on each rank when its stream and its inputs are ready; data moves when the last rank has begun, for

    t = rounds x hop_ns + factor x bytes / (bandwidth / slowest link of the group),     factor as in NCCL's bus bandwidth

and ends on each rank within `end_jitter_ns` (half-normal) and its `end_bias_ns` of that. `noise` is the relative deviation of every kernel,
launch, load and transfer. All planted causes are fields, by rank.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.trace.cluster import Array
from tests.trace.cluster import Cluster as Cluster
from tests.trace.cluster import Moved as Moved
from tests.trace.cluster import Run as Run
from tests.trace.cluster import Span as Span
from tests.trace.cluster import groups as groups

BASE_NS = 1_700_000_000_000_000_000
COMPUTE = 7  # stream
_KERNEL = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "send": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
_SAID = {
    "all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base", "send": "send", "recv": "recv",
}  # fmt: skip


class _Machine:
    """The state of all ranks at once: arrays have one entry a rank."""

    def __init__(self, cluster: Cluster) -> None:
        c = self.c = cluster
        self.rng = np.random.default_rng(cluster.seed)
        n = c.world
        self.host = np.zeros(n)
        self.free: dict[int, Array] = {COMPUTE: np.zeros(n), **{20 + i: np.zeros(n) for i in range(len(c.mesh))}}
        self.all = np.ones(n, bool)
        self.compute, self.speed, self.link = (
            np.array([f.get(r, 1.0) for r in range(n)]) for f in (c.slow_compute, c.slow_host, c.slow_link)
        )
        self.spans: list[Span] = []
        self.moved: list[Moved] = []
        self.correlation = 0
        self.step = 0

    def drawn(self, mean: Array | float) -> Array:
        """`mean` with noise, on each rank; never below a tenth of it."""
        return np.maximum(mean * (1 + self.c.noise * self.rng.standard_normal(self.c.world)), 0.1 * np.asarray(mean))

    def works(self, cat: str, name: str, time: Array | float, where: NDArray[np.bool_] | None = None) -> None:
        """The host spends `time` in something with a name."""
        where = self.all if where is None else where
        start = self.host.copy()
        self.host = np.where(where, self.host + time, self.host)
        self.spans.append(Span(cat, name, start, self.host.copy(), where))

    def mark(self, name: str, start: Array, where: NDArray[np.bool_] | None = None) -> None:
        """A mark from `start` to now on the host."""
        self.spans.append(Span("user_annotation", name, start, self.host.copy(), self.all if where is None else where))

    def launch(self, operator: str, where: NDArray[np.bool_], args: Mapping[str, Any]) -> int:
        """The host issues one kernel; its correlation id."""
        self.correlation += 1
        start = self.host.copy()
        self.host = np.where(where, self.host + self.drawn(self.c.launch_ns * self.speed), self.host)
        inner = start + 0.5 * (self.host - start)
        self.spans.append(Span("cpu_op", operator, start, self.host.copy(), where, args=args))
        self.spans.append(Span("cuda_runtime", "cudaLaunchKernel", inner, self.host.copy(), where, args={"correlation": self.correlation}))
        return self.correlation

    def kernel(
        self, operator: str, name: str, time: float, where: NDArray[np.bool_], args: Mapping[str, Any], after: Array | float = 0.0
    ) -> Array:
        """A compute kernel, not before `after`; its end."""
        correlation = self.launch(operator, where, args)
        begin = np.maximum(np.maximum(self.host, self.free[COMPUTE]), after)
        end = begin + self.drawn(time * self.compute)
        self.free[COMPUTE] = np.where(where, end, self.free[COMPUTE])
        self.spans.append(Span("kernel", name, begin, end, where, COMPUTE, {"correlation": correlation}))
        return end

    def collective(self, name: str, axis: str, size: int, where: NDArray[np.bool_], after: Array) -> Array:
        """A collective of every group of an axis whose ranks are in `where`; its end."""
        c, stream = self.c, 20 + list(self.c.mesh).index(axis)
        members = groups(c.mesh, axis)
        members = members[where[members].all(axis=1)]
        n = members.shape[1]
        factor = {"all_reduce": 2 * (n - 1) / n}.get(name, (n - 1) / n)
        rounds = {"all_reduce": 2 * (n - 1)}.get(name, n - 1)
        return self._moves((name,) * c.world, axis, stream, members, rounds, factor * size, size, where, after)

    def pair(self, axis: str, stage: int, back: bool, size: int, after: Array) -> Array:
        """send from one stage to the next (`back`: to the one before) and its recv; the end."""
        members = groups(self.c.mesh, axis)
        two = members[:, [stage, stage + 1]]
        where = np.zeros(self.c.world, bool)
        where[two.ravel()] = True
        names = np.full(self.c.world, "send", dtype=object)
        names[two[:, 0 if back else 1]] = "recv"
        return self._moves(tuple(names), axis, 20 + list(self.c.mesh).index(axis), two, 1, size, size, where, after)

    def _moves(
        self, names: tuple[str, ...], axis: str, stream: int, members: NDArray[np.int64], rounds: int, moved: float, size: int,
        where: NDArray[np.bool_], after: Array,
    ) -> Array:  # fmt: skip
        c = self.c
        correlation = self.launch("c10d::" + axis, where, {})
        begin = np.maximum(np.maximum(self.host, self.free[stream]), after)
        last, end = begin.copy(), begin.copy()
        arrived = begin[members].max(axis=1)
        time = rounds * c.hop_ns + moved / c.bandwidth * 1e9 * self.link[members].max(axis=1)
        time = time * np.maximum(1 + c.noise * self.rng.standard_normal(len(members)), 0.1)
        last[members], end[members] = arrived[:, None], (arrived + time)[:, None]
        bias = np.array([c.end_bias_ns.get(r, 0.0) for r in range(c.world)])
        end += bias + c.end_jitter_ns * np.abs(self.rng.standard_normal(c.world))
        self.free[stream] = np.where(where, end, self.free[stream])
        group = {r: g for g in groups(c.mesh, axis).tolist() for r in g}
        for name in dict.fromkeys(names):
            here = where & (np.array(names, dtype=object) == name)
            if here.any():
                args = {"correlation": correlation, "Collective name": _SAID[name], "In msg nelems": size // 2, "Out msg nelems": size // 2,
                        "dtype": "BFloat16", "Process Group Description": f"mesh_{axis}", "Group size": c.mesh[axis]}  # fmt: skip
                of_rank = {
                    "Process Group Ranks": {r: str(g) for r, g in group.items()},
                    "Process Group Name": {r: f"{axis}-{g[0]}" for r, g in group.items()},
                }
                if name in ("send", "recv"):
                    other = {r: next(o for o in pair if o != r) for pair in members.tolist() for r in pair}
                    of_rank["Dst Rank" if name == "send" else "Src Rank"] = {r: str(o) for r, o in other.items()}
                self.spans.append(Span("kernel", _KERNEL[name], begin, end, here, stream, args, of_rank))
                self.moved.append(Moved(self.step, name, axis, begin, end, last, here))
        return end

    def holds(self, size: int, reserved: int) -> None:
        """The profiler notes that a block of `size` bytes was given (taken back: below 0)."""
        args = {"Bytes": size, "Addr": 4096, "Device Type": 1, "Total Allocated": 40 << 30, "Total Reserved": reserved}
        of_rank = {"Device Id": {r: r % self.c.ranks_per_host for r in range(self.c.world)}}
        self.spans.append(Span("cpu_instant_event", "[memory]", self.host.copy(), self.host.copy(), self.all, args=args, of_rank=of_rank))

    def retries(self, where: NDArray[np.bool_]) -> None:
        """A request finds no block: segments are freed, for which the device must be done, and it is asked again."""
        reserved = (40 << 30) + self.c.free_bytes
        self.holds(-512, reserved)
        self.works("cuda_runtime", "cudaMalloc", 60_000.0, where)
        done = np.max(list(self.free.values()), axis=0)
        self.works("cuda_runtime", "cudaFree", np.maximum(done - self.host, 0.0) + 150_000.0, where)
        for _ in range(3):
            self.works("cuda_runtime", "cudaFree", 150_000.0, where)
        self.works("cuda_runtime", "cudaMalloc", 400_000.0, where)
        self.holds(1 << 30, reserved)

    def waits(self) -> None:
        """The host waits until its device has done everything."""
        done = np.max(list(self.free.values()), axis=0)
        self.works("cuda_runtime", "cudaStreamSynchronize", np.maximum(done - self.host, 1_000.0))


def simulate(cluster: Cluster) -> Run:
    """The run of a cluster."""
    m = _Machine(cluster)
    ends = []
    for step in range(cluster.steps):
        m.step = step
        start = m.host.copy()
        _step(m)
        m.mark(f"ProfilerStep#{step}", start)
        ends.append(np.max(list(m.free.values()), axis=0))
    return Run(cluster, tuple(m.spans), tuple(m.moved), np.array(ends))


def _step(m: _Machine) -> None:
    c = m.c
    late = np.array([c.late_input_ns.get(r, 0.0) for r in range(c.world)])
    m.works("user_annotation", "headway::phase::input", m.drawn(c.input_ns) + late)
    ready = _passes(m, back=False)
    garbage = np.array([c.gc_ns.get(r, 0.0) for r in range(c.world)])
    if garbage.any():
        m.works("user_annotation", "gc", garbage, garbage > 0)
    ready = np.maximum(ready, _passes(m, back=True))
    if c.norm:
        ready = _norm(m, ready)
    start = m.host.copy()
    for _ in range(c.optimizer_kernels):
        m.kernel(
            "aten::_fused_adamw_",
            "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>",
            c.optimizer_ns,
            m.all,
            {},
            ready,
        )
    m.mark("headway::phase::optimizer", start)
    saves = np.array([c.save_ns.get(r, 0.0) for r in range(c.world)])
    if saves.any():
        m.works("user_annotation", "headway::phase::checkpoint", saves, saves > 0)
    if c.syncs:
        m.waits()


def _norm(m: _Machine, ready: Array) -> Array:
    """The norm of all gradients: a small all-reduce along each axis after the other, for which the optimizer waits."""
    ready = np.maximum(ready, m.free[COMPUTE])
    for axis in (a for a, size in m.c.mesh.items() if size > 1):
        ready = m.collective("all_reduce", axis, 1024, m.all, ready)
    return ready


def _passes(m: _Machine, back: bool) -> Array:
    """Forward or backward of all layers; when what the optimizer needs of it is there."""
    c = m.c
    stages = c.mesh.get("pp", 1)
    stage = np.zeros(c.world, np.int64)
    if stages > 1:
        for s, ranks in enumerate(groups(c.mesh, "pp").T):
            stage[ranks] = s
    ready, after = np.zeros(c.world), np.zeros(c.world)
    for s in range(stages)[:: -1 if back else 1]:
        where = stage == s
        ready = np.maximum(ready, _layers(m, s, where, back, after))
        following = s - 1 if back else s + 1
        if 0 <= following < stages:
            after = m.pair("pp", min(s, following), back, c.activation_bytes, m.free[COMPUTE])
    return ready


def _layers(m: _Machine, stage: int, where: NDArray[np.bool_], back: bool, after: Array) -> Array:
    c = m.c
    num = c.layers // c.mesh.get("pp", 1)
    name, phase = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", "backward" if back else "forward"
    rows, inner, columns = c.gemm
    args = {"Input Dims": [[rows, inner], [inner, columns]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    begin, ready = m.host.copy(), np.zeros(c.world)
    data = [a for a, size in c.mesh.items() if size > 1 and a not in ("tp", "pp")]
    gathered = {0: _gather(m, where, data)} if not back else {}
    between = set(np.linspace(0, num, c.syncs + 1).astype(int)[1:-1].tolist()) if c.syncs > 1 and not back else set()
    for i in range(num):
        if i in between:
            m.waits()
        layer = stage * num + (num - 1 - i if back else i)
        start = m.host.copy()
        if not back and c.overlap and i + 1 < num:
            gathered[i + 1] = _gather(m, where, data)
        elif not back and i not in gathered:
            gathered[i] = _gather(m, where, data)
        after = np.maximum(after, gathered.get(i, 0.0))
        for _ in range(c.kernels * (2 if back else 1)):
            m.kernel("aten::mm", name, c.kernel_ns, where, args, after)
        if c.mesh.get("tp", 1) > 1:
            after = m.collective("all_reduce", "tp", c.activation_bytes, where, m.free[COMPUTE])
        if back and i < c.retries:
            m.retries(where)
        if back:
            done = np.maximum(m.free[COMPUTE], after)
            for axis in data:
                kind = "reduce_scatter" if axis == "dp_shard" else "all_reduce"
                done = m.collective(kind, axis, c.gradient_bytes, where, done)
            ready = np.maximum(ready, np.where(where, done, 0.0)) if data else ready
            after = after if c.overlap or not data else np.maximum(after, done)
        m.mark(f"headway::module::layers.{layer}", start, where)
    m.mark(f"headway::phase::{phase}", begin, where)
    return np.maximum(ready, np.where(where, after, 0.0))


def _gather(m: _Machine, where: NDArray[np.bool_], data: list[str]) -> Array:
    """Weights of one layer; without a stream order of its own: when compute so far is done if nothing may overlap."""
    if "dp_shard" not in data:
        return np.zeros(m.c.world)
    return m.collective("all_gather", "dp_shard", m.c.gradient_bytes, where, np.zeros(m.c.world) if m.c.overlap else m.free[COMPUTE])


# ---- files ----


def events(run: Run, rank: int) -> list[dict[str, Any]]:
    """The events of one rank, in its clock, in the format of Kineto (times in microseconds after BASE_NS)."""
    device = rank % run.cluster.ranks_per_host
    out = []
    mine = [s for s in run.spans if s.where[rank]]
    start = run.local(rank, np.array([s.start[rank] for s in mine]))
    end = run.local(rank, np.array([s.end[rank] for s in mine]))
    for s, a, b in zip(mine, start.tolist(), end.tolist(), strict=True):
        on_host = s.stream < 0
        args = {**s.args, **{k: v[rank] for k, v in s.of_rank.items()}}
        args |= {} if on_host else {"device": device, "stream": s.stream}
        pid, tid = (1000 + rank, 1000 + rank) if on_host else (device, s.stream)
        if s.cat == "cpu_instant_event":
            out.append({"ph": "i", "s": "t", "cat": s.cat, "name": s.name, "pid": pid, "tid": tid, "ts": a / 1000, "args": args})
            continue
        out.append({"ph": "X", "cat": s.cat, "name": s.name, "pid": pid, "tid": tid, "ts": a / 1000, "dur": (b - a) / 1000, "args": args})
    return out


def write(run: Run, folder: Path, *, said: bool = True) -> list[Path]:
    """One file a rank; without `said` they do not say their hosts."""
    c = run.cluster
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in range(c.world):
        data = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": i, "name": "NVIDIA H100 80GB HBM3"} for i in range(min(c.ranks_per_host, c.world))],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": c.world},
            "baseTimeNanoseconds": BASE_NS,
            **({"host_name": f"node{rank // c.ranks_per_host}"} if said else {}),
            "traceEvents": events(run, rank),
        }
        paths.append(folder / f"rank{rank:04d}.json")
        paths[-1].write_text(json.dumps(data))
    return paths
