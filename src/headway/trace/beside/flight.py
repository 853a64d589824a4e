"""Where the groups of a job stand, by the flight recorders of its ranks: facts for whoever looks for the cause of a hang."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final

from headway.spec.flight import FlightEntry, FlightGroup, FlightLog, GroupState, LastCollective
from headway.spec.health import Health, some

_ALIKE: Final = frozenset(
    ("all_reduce", "allreduce", "broadcast", "reduce", "all_gather_base", "reduce_scatter_base", "all_gather", "reduce_scatter")
)
_MOST_SHOWN: Final = 20  # differences of one group
Key = tuple[str, tuple[int, ...]]


def groups(logs: Sequence[FlightLog]) -> tuple[GroupState, ...]:
    """The state of every group that any rank recorded; those in which ranks stand apart first. Logs without a rank cannot be placed."""
    placed = [log for log in logs if log.rank is not None]
    known = {log.rank for log in placed}
    named = [_named(log) for log in placed]
    members: dict[str, set[tuple[int, ...]]] = defaultdict(set)  # of all groups of a name, as far as any dump says them
    for mine in named:
        for name, group in mine.items():
            members[name] |= {group.ranks} if group.ranks else set()
    code_of: dict[Key, int] = {}
    entries: dict[int, dict[int, list[FlightEntry]]] = defaultdict(lambda: defaultdict(list))
    text_of: dict[int, str] = {}
    for log, mine in zip(placed, named, strict=True):
        codes = {}
        for name, group in mine.items():  # where a dump does not say who is in its group, it is the only one known of that name
            only = next(iter(members[name])) if len(members[name]) == 1 else ()
            codes[name] = code_of.setdefault((name, group.ranks or only), len(code_of))
            text_of[codes[name]] = group.text or text_of.get(codes[name], "")
        for entry in log.entries:
            entries[codes[entry.group]][log.rank or 0].append(entry)
    completed = {(log.rank or 0, status.group): status.completed for log in placed for status in log.status}
    found = [_state(key, text_of[code], entries[code], known, completed) for key, code in code_of.items()]
    return tuple(sorted(found, key=lambda s: (not s.behind, not s.stuck, not s.silent, not s.differ, -len(s.ranks), s.text, s.group)))


def health(logs: Sequence[FlightLog]) -> list[Health]:
    """What makes the state of groups uncertain."""
    out = []
    unplaced = sum(log.rank is None for log in logs)
    if unplaced:
        text = "flight recorders that do not say their rank (nor their file's name): they are left out"
        out.append(Health(what="flight_rank_unknown", count=unplaced, affects="groups of flight recorders", text=text))
    unreadable = sum(log.unreadable for log in logs)
    if unreadable:
        text = "entries of flight recorders that cannot be read are left out"
        out.append(Health(what="flight_entries", count=unreadable, affects="groups of flight recorders", text=text))
    silent = sum(not log.entries for log in logs)
    if silent:
        text = "flight recorders without entries: the rank had nothing in flight, or its recorder was off"
        out.append(Health(what="flight_empty", count=silent, affects="groups of flight recorders", text=text))
    ranks = [log.rank for log in logs if log.rank is not None]
    world = max((log.world or 0 for log in logs), default=0)
    if len(set(ranks)) < len(ranks):
        text = "flight recorders of one rank twice: dumps of two jobs, or of two moments, are mixed"
        out.append(Health(what="flight_ranks_twice", count=len(ranks) - len(set(ranks)), affects="groups of flight recorders", text=text))
    absent = sorted(set(range(world)) - set(ranks)) if ranks else []
    if absent:
        text = f"ranks without a flight recorder, of {world}: {some(absent)}"
        out.append(Health(what="flight_missing_ranks", count=len(absent), affects="groups of flight recorders", text=text))
    return out


def _named(log: FlightLog) -> dict[str, FlightGroup]:
    """The groups of the entries of a log, by name. Where the file lists one group without a name (Gloo), it is that one."""
    told = {g.name: g for g in log.groups}
    bare = told.get("") if len(told) == 1 else None
    out: dict[str, FlightGroup] = {}
    for entry in log.entries:
        if entry.group not in out or (entry.text and not out[entry.group].text):
            found = told.get(entry.group, bare)
            text = entry.text or (found.text if found else "")
            out[entry.group] = FlightGroup(name=entry.group, text=text, ranks=found.ranks if found else ())
    return out


def _state(
    key: Key,
    text: str,
    by_rank: Mapping[int, Sequence[FlightEntry]],
    known: Iterable[int | None],
    completed: Mapping[tuple[int, str], int | None],
) -> GroupState:
    name, ranks = key
    collectives = {r: [e for e in es if not e.is_p2p and e.number is not None] for r, es in by_rank.items()}
    last = tuple(_last(r, es, completed) for r, es in sorted(collectives.items()) if es)
    furthest = max((one.number for one in last), default=0)
    members = ranks or tuple(sorted(by_rank))
    pending: dict[str, list[int]] = defaultdict(list)
    for rank, mine in sorted(by_rank.items()):
        for entry in mine:
            if entry.is_p2p and not entry.done and rank not in pending[entry.name]:
                pending[entry.name].append(rank)
    return GroupState(
        group=name,
        text=text,
        ranks=ranks,
        last=last,
        behind=tuple(one.rank for one in last if one.number < furthest),
        stuck=_stuck(last),
        silent=tuple(r for r in members if r in known and not collectives.get(r)) if last else (),
        absent=tuple(r for r in members if r not in known),
        differ=tuple(_differences(collectives)),
        pending={op: tuple(waiting) for op, waiting in pending.items() if waiting},
    )


def _stuck(last: Sequence[LastCollective]) -> tuple[int, ...]:
    """Ranks whose oldest collective without an end is behind another rank.

    A collective ends on one rank only after all have entered it, so what has ended there could end here.
    """
    furthest = max((one.oldest for one in last if one.oldest is not None), default=0)
    return tuple(one.rank for one in last if one.oldest is not None and one.oldest < furthest)


def _oldest(entries: Sequence[FlightEntry]) -> int | None:
    """The first collective without an end; the one after the last where all have ended. Gloo records no ends."""
    if any(e.backend == "gloo" for e in entries):
        return None
    unfinished = [e.number for e in entries if e.number is not None and not e.done]
    return min(unfinished) if unfinished else max(e.number or 0 for e in entries) + 1


def _last(rank: int, entries: Sequence[FlightEntry], completed: Mapping[tuple[int, str], int | None]) -> LastCollective:
    entry = max(entries, key=lambda e: e.number or 0)
    return LastCollective(
        rank=rank,
        number=entry.number or 0,
        name=entry.name,
        state=entry.state,
        retired=entry.retired,
        inputs=entry.inputs,
        created_ns=entry.created_ns,
        oldest=_oldest(entries),
        completed=completed.get((rank, entry.local)),
        frame=entry.frames[0] if entry.frames else "",
    )


def _differences(by_rank: Mapping[int, Sequence[FlightEntry]]) -> list[dict[str, Any]]:
    """Collectives of one number that ranks recorded differently. Sizes count where all ranks must give the same."""
    seen: dict[int, dict[str, dict[str, list[int]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for rank, entries in by_rank.items():
        firsts = {e.number: e for e in reversed(entries)}
        for number, e in firsts.items():
            seen[number or 0]["name"][e.name].append(rank)
            seen[number or 0]["type"][" ".join(e.input_types)].append(rank)
            if e.name.strip("_") in _ALIKE:
                seen[number or 0]["size"][" ".join(str(prod(dims)) for dims in e.inputs)].append(rank)
    return [
        {"number": number, "what": what, "values": {value: tuple(sorted(ranks)) for value, ranks in values.items()}}
        for number in sorted(seen)
        for what, values in seen[number].items()
        if len(values) > 1
    ][:_MOST_SHOWN]
