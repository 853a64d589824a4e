"""Networks by name: ours, a user's own, and what a network may leave unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headway.nn import registry
from headway.nn.dit import DiT
from headway.spec.errors import SpecError
from headway.spec.parts import ModelSpec

OWN = """
from torch import nn


class Conv(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.width = width

    def forward(self, x, t, condition):
        return self.conv(x) * t.view(-1, 1, 1, 1)


def make(model, *, channels, size, num_classes):
    return Conv(channels, model.options["width"])


def number(model, *, channels, size, num_classes):
    return 3
"""


def test_dit_by_name() -> None:
    network = registry.build(ModelSpec(), channels=1, size=8, num_classes=10)
    assert isinstance(network, DiT)
    assert registry.axes(network) == network.axes()
    assert list(registry.needs(network, num_classes=10)) == ["label", "drop"]


@pytest.mark.parametrize(("condition", "needs"), [("text", ["text", "drop"]), ("none", [])])
def test_conditions(condition: str, needs: list[str]) -> None:
    spec = ModelSpec(condition=condition, text_dim=7)  # type: ignore[arg-type]
    network = registry.build(spec, channels=3, size=8, num_classes=10)
    assert list(registry.needs(network, num_classes=10)) == needs


def test_a_users_network(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    spec = ModelSpec(name=f"{file}:make", options={"width": 5})
    with torch.device("meta"):
        network = registry.build(spec, channels=3, size=8, num_classes=4)
    assert network.width == 5
    assert registry.axes(network) == {"conv.weight": ("none",) * 4, "conv.bias": ("none",)}
    assert list(registry.needs(network, num_classes=4)) == ["label", "drop"]
    assert registry.needs(network, num_classes=0) == {}


def test_refusals(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    for spec, classes, message in (
        (ModelSpec(name=f"{file}:number"), 4, "returned int, not a torch.nn.Module"),
        (ModelSpec(name="unet"), 4, "'unet' is not known"),
        (ModelSpec(condition="class"), 0, "no classes"),
    ):
        with pytest.raises(SpecError, match=message):
            registry.build(spec, channels=1, size=8, num_classes=classes)
