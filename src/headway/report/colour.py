"""A colour for every name, the same on every page: compute blue and teal, comm orange, copy purple, idle red and grey.

Hues differ between heads, lightness differs within one, so the charts read with any kind of colour vision and in grey.
"""

from __future__ import annotations

from typing import Final

from headway.report.rows import Kind, head_of

HEAD_COLOURS: Final = {"compute": "#2f6fbd", "comm": "#e0861a", "copy": "#8257b8", "idle": "#b0444f"}
OTHER: Final = "#8d949e"

_COMPUTE: Final = {
    "gemm": "#2a5fad", "attention": "#4a90d9", "conv": "#6fa8e0", "norm": "#12757d", "elementwise": "#38a3a5", "reduce": "#7cc4bd",
    "gather": "#a3d5cf", "quantize": "#8dbdf0", "optimizer": "#1f8f86", "copy": "#b3cfee", "custom": "#5a78b8", "other": "#9db8cf",
}  # fmt: skip
_COMM: Final = {
    "transfer": ("#e8891c", "#f0a548", "#f5bd76", "#f9d3a2"),
    "wait": ("#b9500f", "#cc6a2c", "#db8650", "#e8a47b"),
    "unsplit": ("#d9a514", "#e4ba47", "#edcd78", "#f4dfa6"),
}
_COPY: Final = {"h2d": "#7a4fb3", "d2h": "#aa8bd2"}
_IDLE: Final = {
    "input": "#a8323f", "encode": "#cf7f86", "checkpoint": "#7f3b45", "evaluate": "#5e6570", "sync": "#c95f69", "launch": "#8d949e",
    "allocator": "#d99aa0", "compile": "#737a85", "gc": "#a9afb8", "collective": "#b77c83", "unknown": "#c6cad0",
}  # fmt: skip
_PHASES: Final = {
    "input": "#a8323f", "encode": "#cf7f86", "forward": "#4a90d9", "backward": "#2a5fad", "reduce": "#e8891c", "clip": "#f5bd76",
    "optimizer": "#1f8f86", "ema": "#7cc4bd", "checkpoint": "#7f3b45", "evaluate": "#5e6570", "other": "#a9afb8",
}  # fmt: skip
_MODULES: Final = (
    "#2a5fad", "#38a3a5", "#8dbdf0", "#12757d", "#6fa8e0", "#7cc4bd", "#5a78b8", "#a3d5cf", "#4a90d9", "#1f8f86", "#b3cfee", "#9db8cf",
)  # fmt: skip
LINES: Final = ("#2f6fbd", "#e0861a", "#12857d", "#8257b8", "#b0444f", "#737a85")  # curves: distinct hues of like weight
RAMP: Final = ("#eaf1f8", "#bcd6ee", "#86b6df", "#4f90c9", "#2a68a8", "#173f73", "#0b1f3f")  # short to long times, light to dark


def colours(kind: Kind, names: list[str]) -> list[str]:
    """A colour for each name, in the order of the names."""
    seen: dict[str, int] = {}
    out = []
    for i, name in enumerate(names):
        if kind == "phases":
            out.append(_PHASES.get(name, OTHER))
        elif kind == "modules":
            out.append(OTHER if not name or name.startswith("(") else _MODULES[i % len(_MODULES)])
        else:
            out.append(_bucket(name, seen))
    return out


def _bucket(name: str, seen: dict[str, int]) -> str:
    head, _, rest = name.partition(".")
    if not rest:
        return HEAD_COLOURS.get(head, OTHER)
    if head == "comm":
        part = rest.rpartition(".")[2]
        shades = _COMM.get(part, _COMM["unsplit"])
        seen[part] = seen.get(part, -1) + 1  # one shade after another, in the order of the table
        return shades[seen[part] % len(shades)]
    known = {"compute": _COMPUTE, "copy": _COPY, "idle": _IDLE}.get(head, {})
    return known.get(rest, HEAD_COLOURS.get(head_of(name), OTHER))
