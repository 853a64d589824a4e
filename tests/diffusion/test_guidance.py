"""Guidance: the two ends, the line through them, and its cost."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from headway.diffusion.guidance import guided
from headway.nn.dit import DiT
from headway.nn.init import init_weights
from headway.spec.errors import SpecError

LABEL = {"label": torch.tensor([1, 4, 4])}
X, T = torch.randn(3, 1, 8, 8, dtype=torch.float64), torch.tensor([0.1, 0.5, 1.0])


def network() -> DiT:
    net = DiT(depth=2, width=32, heads=4, patch=2, mlp_ratio=2.0, channels=1, size=8, num_classes=10)
    init_weights(net, seed=0, mode="perturbed")
    return net.double()


def told(net: nn.Module, drop: bool) -> Tensor:
    v: Tensor = net(X, T, LABEL | {"drop": torch.full((3,), drop)})
    return v


def test_scale_one_is_the_condition_and_zero_is_none() -> None:
    net = network()
    assert torch.equal(guided(net, LABEL, 1.0)(X, T), told(net, False))
    assert torch.equal(guided(net, LABEL, 0.0)(X, T), told(net, True))
    assert not torch.allclose(told(net, True), told(net, False))


@pytest.mark.parametrize("scale", [0.5, 2.0, 4.0, -1.0])
def test_other_scales_lie_on_the_line_through_both(scale: float) -> None:
    net = network()
    expected = told(net, True) + scale * (told(net, False) - told(net, True))
    torch.testing.assert_close(guided(net, LABEL, scale)(X, T), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("scale", "samples"), [(0.0, 3), (1.0, 3), (3.0, 6)])
def test_one_call_of_the_network_whatever_the_scale(scale: float, samples: int) -> None:
    calls: list[int] = []

    class Spy(nn.Module):
        def forward(self, x: Tensor, t: Tensor, condition: Mapping[str, Tensor]) -> Tensor:
            calls.append(len(x))
            assert len(t) == len(x) and all(len(v) == len(x) for v in condition.values())
            return x

    guided(Spy(), LABEL, scale)(X, T)
    assert calls == [samples]


def test_a_network_that_is_told_nothing_cannot_be_guided() -> None:
    net = DiT(depth=1, width=16, heads=2, patch=2, mlp_ratio=2.0, channels=1, size=8)
    init_weights(net, seed=0, mode="perturbed")
    assert guided(net, {}, 1.0)(X.float(), T).shape == X.shape
    with pytest.raises(SpecError, match="no condition"):
        guided(net, {}, 2.0)
