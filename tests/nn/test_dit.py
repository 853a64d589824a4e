"""The DiT: shapes, conditions, formats, axes, and that every parameter matters."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headway.nn import dit as dits
from headway.nn.dit import DiT, patchify, time_features, unpatchify
from headway.nn.init import init_weights
from headway.nn.position import grid_code, rotary, rotate

CPU = torch.device("cpu")


def network(mode: str = "perturbed", **changes: object) -> DiT:
    sizes: dict[str, object] = {
        "depth": 2,
        "width": 32,
        "heads": 4,
        "patch": 2,
        "mlp_ratio": 2.0,
        "channels": 1,
        "size": 8,
        "num_classes": 10,
    }
    net = DiT(**(sizes | changes))  # type: ignore[arg-type]
    init_weights(net, seed=3, mode=mode)  # type: ignore[arg-type]
    return net


def inputs(
    net: DiT, num: int = 4, *, channels: int = 1, size: int = 8, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(num, channels, size, size, generator=g, dtype=dtype)
    condition: dict[str, Tensor] = {}
    if "label" in net.needs:
        condition["label"] = torch.randint(0, 10, (num,), generator=g)
    if "text" in net.needs:
        condition["text"] = torch.randn(num, *net.needs["text"][0], generator=g)
    if condition:
        condition["drop"] = torch.arange(num) % 2 == 1
    return x, torch.rand(num, generator=g), condition


KINDS: list[dict[str, object]] = [
    {},
    {"num_classes": 0, "text_dim": 6},
    {"num_classes": 0},
    {"patch": 1, "depth": 1},
    {"channels": 3, "patch": 4, "mlp_ratio": 0.7},
    {"patch": 8, "heads": 8},  # one token
]


@pytest.mark.parametrize("changes", KINDS)
def test_velocity_has_the_shape_of_x_and_every_gradient_is_non_zero(changes: dict[str, object]) -> None:
    net = network(**changes)
    channels = int(changes.get("channels", 1))  # type: ignore[call-overload]
    x, t, condition = inputs(net, channels=channels)
    v = net(x, t, condition)
    assert v.shape == x.shape and v.dtype == torch.float32 and not v._is_view()
    F.mse_loss(v, torch.randn_like(v)).backward()
    for name, p in net.named_parameters():
        assert p.grad is not None, name
        if net.side == 1 and ("_norm" in name or "qkv" in name):
            continue  # the softmax over one token is 1, whatever q and k are
        rows = p.grad.flatten(1).abs().amax(1) if p.dim() > 1 else p.grad.abs()
        used = condition["label"][~condition["drop"]] if name == "label.weight" else slice(None)
        assert (rows[used] > 0).all(), name


def test_zero_init_gives_zero_velocity_and_identity_blocks() -> None:
    net = network("zero")
    x, t, condition = inputs(net)
    assert torch.equal(net(x, t, condition), torch.zeros_like(x))
    tokens, c = torch.randn(4, 16, 32), torch.randn(4, 32)
    assert torch.equal(net.blocks[0](tokens, c, *rotary(4, 8, CPU, torch.float32)), tokens)


def test_a_sample_does_not_see_its_batch() -> None:
    net = network().double()
    x, t, condition = inputs(net, 6)
    whole = net(x.double(), t, condition)
    part = net(x[2:5].double(), t[2:5], {k: v[2:5] for k, v in condition.items()})
    torch.testing.assert_close(whole[2:5], part, rtol=0, atol=1e-13)


@pytest.mark.parametrize("changes", KINDS[:2])
def test_dropped_samples_do_not_see_their_condition(changes: dict[str, object]) -> None:
    net = network(**changes)
    x, t, condition = inputs(net)
    key = next(k for k in net.needs if k != "drop")
    other = condition | {key: condition[key].flip(0)}
    a, b = net(x, t, condition), net(x, t, other)
    assert torch.equal(a[1::2], b[1::2])
    assert not torch.equal(a[0::2], b[0::2])
    kept = {k: v for k, v in condition.items() if k != "drop"}
    assert torch.equal(net(x, t, kept), net(x, t, kept | {"drop": torch.zeros(4, dtype=torch.bool)}))


def test_the_network_sees_time_and_place() -> None:
    net = network()
    x, t, condition = inputs(net)
    assert not torch.allclose(net(x, t, condition), net(x, t + 0.01, condition), atol=1e-7)
    rolled = net(x.roll((2, 2), (2, 3)), t, condition).roll((-2, -2), (2, 3))
    assert not torch.allclose(rolled, net(x, t, condition), atol=1e-5)


def test_float64_and_bf16() -> None:
    net = network()
    x, t, condition = inputs(net)
    single = net(x, t, condition)
    double = network().double()(x.double(), t, condition)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single, double.float(), rtol=1e-4, atol=1e-5)
    short = network().bfloat16()(x, t, condition)
    assert short.dtype == torch.float32
    assert (short - single).norm() < 0.03 * single.norm()


def test_time_features_stay_float32_in_a_bf16_network(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.dtype] = []

    def spy(t: Tensor) -> Tensor:
        seen.append(t.dtype)
        return time_features(t)

    monkeypatch.setattr(dits, "time_features", spy)
    net = network().bfloat16()
    x, t, condition = inputs(net)
    net(x.bfloat16(), t, condition)
    assert seen == [torch.float32]


def test_axes_name_every_dim_of_every_parameter() -> None:
    for changes in KINDS:
        net = network(**changes)
        axes = net.axes()
        assert set(axes) == {n for n, _ in net.named_parameters()}
        sizes = {"embed": 32, "time": 32, "class": 10, "text": 6, "heads": 96, "none": None}
        for name, p in net.named_parameters():
            assert len(axes[name]) == p.dim(), name
            for axis, size in zip(axes[name], p.shape, strict=True):
                if name.endswith("out.weight") and "attention" in name:
                    continue  # its heads are values only, not q, k and v
                assert sizes.get(axis) in (None, size), (name, axes[name], tuple(p.shape))


def test_attention_is_the_textbook_formula() -> None:
    net = network().double()
    attention = net.blocks[0].attention
    x = torch.randn(2, 16, 32, dtype=torch.float64)
    cos, sin = rotary(4, 8, CPU, torch.float64)
    rows = attention.qkv(x).view(2, 16, 4, 3, 8)
    out = []
    for head in range(4):
        q, k, v = rows[:, :, head].unbind(2)
        q, k = (rotate(norm(a)[:, :, None], cos, sin)[:, :, 0] for norm, a in ((attention.q_norm, q), (attention.k_norm, k)))
        out.append(torch.softmax(q @ k.mT / 8**0.5, -1) @ v)
    torch.testing.assert_close(attention(x, cos, sin), attention.out(torch.cat(out, -1)), rtol=0, atol=1e-12)


def test_rotations_keep_lengths_and_see_differences_of_places_only() -> None:
    cos, sin = rotary(5, 8, CPU, torch.float64)
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    q_at, k_at = (rotate(a.expand(1, 25, 1, 8), cos, sin)[0, :, 0] for a in (q, k))
    torch.testing.assert_close(q_at.norm(dim=1), q.norm().expand(25))
    scores = (q_at @ k_at.T).view(5, 5, 5, 5)  # row and column of q, row and column of k
    torch.testing.assert_close(scores[0, 0, 2, 1], scores[2, 3, 4, 4])
    assert abs(scores[0, 0, 2, 1] - scores[0, 0, 1, 2]) > 1e-3


def test_codes_tell_all_places_apart() -> None:
    code = grid_code(16, 64, CPU, torch.float64)
    assert (torch.cdist(code, code) + 10 * torch.eye(256)).min() > 0.1


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_patches_come_back(b: int, c: int, side: int, patch: int) -> None:
    x = torch.arange(b * c * (side * patch) ** 2, dtype=torch.float32).view(b, c, side * patch, side * patch)
    patches = patchify(x, patch)
    assert patches.shape == (b, side * side, c * patch * patch)
    assert torch.equal(unpatchify(patches, patch, side), x)
    assert torch.equal(patches[0, -1], x[0, :, -patch:, -patch:].flatten())


def test_works_on_the_meta_device() -> None:
    with torch.device("meta"):
        net = DiT(depth=1, width=32, heads=4, patch=2, mlp_ratio=4.0, channels=3, size=8, text_dim=5)
        v = net(torch.empty(2, 3, 8, 8), torch.empty(2), {"text": torch.empty(2, 5)})
    assert v.shape == (2, 3, 8, 8) and v.device.type == "meta"
