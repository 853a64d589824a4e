"""FSDP's own marks name a module, or none: those of the root."""

from __future__ import annotations

import pytest

from headway.trace.marks import module


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("FSDP::pre_forward (blocks.0)", "blocks.0"),
        ("FSDP::backward_prefetch for blocks.3", "blocks.3"),
        ("FSDP::pre_forward", ""),
        ("FSDP::root_post_backward_callback", ""),
        ("headway::module::time", "time"),
    ],
)
def test_module_of_a_mark(name: str, path: str) -> None:
    assert module(name) == path
