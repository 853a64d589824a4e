"""Communicators over all ranks that logged them, and what of their links makes communication slower than the machine allows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from headway.spec.health import Health
from headway.spec.nccl import NcclComm, NcclLinks, NcclLog


def links(logs: Sequence[NcclLog]) -> tuple[NcclLinks, ...]:
    """Every communicator, the largest first. Those without a commId (old versions) are one a process."""
    members: dict[str, list[tuple[NcclLog, NcclComm]]] = defaultdict(list)
    for log in logs:
        for comm in log.comms:
            members[comm.identity or f"{comm.handle} of {log.host}:{log.process}"].append((log, comm))
    out = [_links(identity, rows) for identity, rows in members.items()]
    return tuple(sorted(out, key=lambda c: (-(c.size or 0), c.identity)))


def _links(identity: str, rows: Sequence[tuple[NcclLog, NcclComm]]) -> NcclLinks:
    total: Counter[str] = Counter()
    for _, comm in rows:
        total.update(comm.links)
    comms = [comm for _, comm in rows]
    ranked = {c.rank: c for c in comms if c.rank is not None}
    return NcclLinks(
        identity=identity,
        size=max((c.size for c in comms if c.size is not None), default=None),
        ranks=tuple(sorted(ranked)),
        hosts=len({log.host for log, _ in rows}),
        links=dict(sorted(total.items(), key=lambda kv: (-kv[1], kv[0]))),
        channels=tuple(sorted({c.channels for c in comms if c.channels is not None})),
        init_ns=max((c.init_ns for c in comms if c.init_ns is not None), default=None),
        incomplete=tuple(sorted(r for r, c in ranked.items() if not c.complete)),
        operations=max((c.operations for c in comms), key=lambda o: sum(o.values())),
        last_operations={r: c.last_operation for r, c in sorted(ranked.items()) if c.last_operation is not None},
    )


def health(logs: Sequence[NcclLog]) -> list[Health]:
    """What NCCL warned of, and links that are slower than a GPU machine should need."""
    out = []
    found = links(logs)

    def note(what: str, count: int, text: str, affects: str = "time of collectives") -> None:
        if count:
            out.append(Health(what=what, count=count, affects=affects, text=text))

    tcp = [c for c in found if any(name.startswith("NET/Socket") for name in c.links)]
    note("nccl_over_tcp", len(tcp), f"communicators of NCCL that run over TCP sockets (NET/Socket): {_named(tcp)}")
    staged = [c for c in found if c.links.get("NET/IB") and not c.links.get("NET/IB/GDRDMA")]
    note("nccl_without_gpudirect", len(staged), f"communicators that pass InfiniBand or RoCE without GPUDirect RDMA: {_named(staged)}")
    shared = [c for c in found if c.links.get("SHM")]
    note("nccl_over_host_memory", len(shared), f"communicators whose GPUs of one machine talk through its memory (SHM): {_named(shared)}")
    uneven = [c for c in found if len(c.channels) > 1]
    note("nccl_uneven_channels", len(uneven), f"communicators whose ranks have different numbers of channels: {_named(uneven)}")
    open_ended = [c for c in found if c.incomplete]
    text = f"communicators that some ranks began to start and did not finish: {_named(open_ended)}"
    note("nccl_init_incomplete", len(open_ended), text, "the run itself")
    versions = sorted({log.version for log in logs if log.version})
    note("nccl_versions", len(versions) - 1 if versions else 0, f"different versions of NCCL in one run: {', '.join(versions[:4])}")
    warnings = [(log, w) for log in logs for w in log.warnings]
    if warnings:
        log, first = warnings[0]
        place = f"{log.host}: " if log.host else ""
        note("nccl_warnings", sum(w.count for _, w in warnings), f"NCCL warned; the first: {place}{first.text}", "communication")
    return out


def _named(comms: Sequence[NcclLinks]) -> str:
    shown = [f"{c.identity} of {c.size if c.size is not None else '?'} ranks" for c in comms[:3]]
    return ", ".join(shown) + (f" and {len(comms) - 3} more" if len(comms) > 3 else "")
