"""DiT: a transformer over image patches whose every block is modulated by the timestep and the condition.

    x [b, c, h, w] -> patches -> tokens [b, t, width] + grid code -> blocks -> norm, modulate, project -> velocity [b, c, h, w]

    c     = silu(time(t) + condition)
    block:  x = x + gate1 * attention(modulate(norm(x), shift1, scale1))
            x = x + gate2 * mlp(modulate(norm(x), shift2, scale2)),     six modulations = linear(c)

At the start the gates are zero, so that each block is the identity (AdaLN-zero, Peebles and Xie 2023). Queries and keys are normalised per
head (QK-norm, Dehghani et al. 2023) and rotated by their place in the grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from headway.nn.position import grid_code, rotary, rotate

TIME_FEATURES: Final = 256
TIME_SCALE: Final = 1000.0  # t of [0, 1] as the steps 0 .. 1000 that these frequencies were made for
NORM_EPS: Final = 1e-6

AXES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (  # parameter name -> logical axis of each dim
    ("patch_in.weight", ("embed", "patch")),
    ("time.up.weight", ("time", "none")),
    ("time.up.bias", ("time",)),
    ("time.down.weight", ("embed", "time")),
    ("label.weight", ("class", "embed")),
    ("text.weight", ("embed", "text")),
    ("*qkv.weight", ("heads", "embed")),
    ("*qkv.bias", ("heads",)),
    ("*attention.out.weight", ("embed", "heads")),
    ("*_norm.weight", ("none",)),
    ("*mlp.up.weight", ("mlp", "embed")),
    ("*mlp.up.bias", ("mlp",)),
    ("*mlp.down.weight", ("embed", "mlp")),
    ("*modulation.weight", ("modulation", "embed")),
    ("*modulation.bias", ("modulation",)),
    ("patch_out.weight", ("patch", "embed")),
    ("patch_out.bias", ("patch",)),
    ("*", ("embed",)),  # all that is left: biases of what writes tokens, and the null condition
)


class DiT(nn.Module):
    """Velocity of a square image at time t under a condition: "label" [b] int64, "text" [b, text_dim] or nothing."""

    def __init__(
        self,
        *,
        depth: int,
        width: int,
        heads: int,
        patch: int,
        mlp_ratio: float,
        channels: int,
        size: int,
        num_classes: int = 0,
        text_dim: int = 0,
    ) -> None:
        super().__init__()
        assert not (num_classes and text_dim), "a class or a text vector, not both"
        assert size % patch == 0 and width % heads == 0 and (width // heads) % 4 == 0
        self.patch, self.side, self.head_dim, self.width = patch, size // patch, width // heads, width
        self.patch_in = nn.Linear(channels * patch * patch, width)
        self.time = TimeEmbedding(width)
        if num_classes:
            self.label = nn.Embedding(num_classes, width)
        if text_dim:
            self.text = nn.Linear(text_dim, width)
        if num_classes or text_dim:
            self.null = nn.Parameter(torch.empty(width))  # the learned condition of those that have none
        self.blocks = nn.ModuleList(Block(width, heads, round(mlp_ratio * width)) for _ in range(depth))
        self.modulation = nn.Linear(width, 2 * width)
        self.patch_out = nn.Linear(width, channels * patch * patch)

    @property
    def needs(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """What the condition holds: key -> (shape of a sample, dtype). "drop" may be left out."""
        if hasattr(self, "label"):
            return {"label": ((), torch.int64), "drop": ((), torch.bool)}
        if hasattr(self, "text"):
            return {"text": ((self.text.in_features,), torch.float32), "drop": ((), torch.bool)}
        return {}

    def axes(self) -> dict[str, tuple[str, ...]]:
        """Logical axis of each dim of each parameter."""
        return {name: next(axes for pattern, axes in AXES if fnmatchcase(name, pattern)) for name, _ in self.named_parameters()}

    def zeros(self) -> tuple[str, ...]:
        """Weights that are zero at the start (patterns of parameter names): the gates, the last modulation, the output."""
        return ("*modulation.weight", "patch_out.weight")

    def forward(
        self, x: Float[Tensor, "b c h w"], t: Float[Tensor, " b"], condition: Mapping[str, Shaped[Tensor, "b ..."]]
    ) -> Float[Tensor, "b c h w"]:
        """Velocity [b, c, h, w] in float32 (float64 for a float64 network) of x [b, c, h, w] at t [b]; condition: see `needs`."""
        dtype = self.patch_in.weight.dtype
        wide = torch.promote_types(dtype, torch.float32)  # positions and times are never shorter than float32
        tokens = self.patch_in(patchify(x.to(dtype), self.patch)) + grid_code(self.side, self.width, x.device, wide).to(dtype)
        c = F.silu(self.time(t.to(wide), dtype) + self.embed(condition, len(x), dtype))
        cos, sin = rotary(self.side, self.head_dim, x.device, wide)
        for block in self.blocks:
            tokens = block(tokens, c, cos, sin)
        shift, scale = self.modulation(c)[:, None].chunk(2, dim=-1)
        patches = self.patch_out(modulate(tokens, shift, scale))
        return unpatchify(patches, self.patch, self.side).to(wide, copy=True)  # never a view: hooks on the output refuse one

    def embed(self, condition: Mapping[str, Tensor], num: int, dtype: torch.dtype) -> Tensor | float:
        """The condition as [b, width]; the null condition where "drop" is true; 0 for a network that is told nothing."""
        if not self.needs:
            return 0.0
        known = self.label(condition["label"]) if hasattr(self, "label") else self.text(condition["text"].to(dtype))
        drop = condition["drop"] if "drop" in condition else torch.zeros(num, dtype=torch.bool, device=known.device)
        return torch.where(drop[:, None], self.null, known)  # always, so that `null` has a gradient on every rank


class Block(nn.Module):
    """Attention and feed-forward, each modulated by c and gated by it."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.mlp = Mlp(width, hidden)
        self.modulation = nn.Linear(width, 6 * width)

    def forward(
        self, x: Float[Tensor, "b t d"], c: Float[Tensor, "b d"], cos: Float[Tensor, "t p"], sin: Float[Tensor, "t p"]
    ) -> Float[Tensor, "b t d"]:
        """Tokens [b, t, d], conditioned by c [b, d] (after its SiLU); cos and sin as `rotary` gives them."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(c)[:, None].chunk(6, dim=-1)
        x = x + gate1 * self.attention(modulate(x, shift1, scale1), cos, sin)
        return x + gate2 * self.mlp(modulate(x, shift2, scale2))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Self-attention over all tokens. The rows of `qkv` run (head, q k v, channel), so that a part of the rows is a part of the heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_dim = width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.q_norm = nn.RMSNorm(self.head_dim, eps=NORM_EPS)
        self.k_norm = nn.RMSNorm(self.head_dim, eps=NORM_EPS)
        self.out = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "b t d"], cos: Float[Tensor, "t p"], sin: Float[Tensor, "t p"]) -> Float[Tensor, "b t d"]:
        """softmax(q k^T / sqrt(head_dim)) v over tokens [b, t, d]."""
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, -1, 3, self.head_dim).unbind(3)  # each [b, t, heads, head_dim]
        q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.out(y.transpose(1, 2).reshape(b, t, -1))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """Linear, GELU (tanh form), linear."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """Each token by itself."""
        return self.down(F.gelu(self.up(x), approximate="tanh"))  # type: ignore[no-any-return]


class TimeEmbedding(nn.Module):
    """Sines and cosines of t, then an MLP. The features are computed in float32 or wider: bf16 cannot tell neighbouring timesteps apart."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(TIME_FEATURES, width)
        self.down = nn.Linear(width, width)

    def forward(self, t: Float[Tensor, " b"], dtype: torch.dtype) -> Float[Tensor, "b d"]:
        """[b] -> [b, width] in `dtype`."""
        return self.down(F.silu(self.up(time_features(t).to(dtype))))  # type: ignore[no-any-return]


def time_features(t: Float[Tensor, " b"]) -> Float[Tensor, "b features"]:
    """cos and sin of TIME_SCALE t at frequencies from 1 down to 1/10000: [b] -> [b, TIME_FEATURES]."""
    half = TIME_FEATURES // 2
    frequency = torch.exp(torch.arange(half, device=t.device, dtype=t.dtype) * (-math.log(10_000.0) / half))
    angle = TIME_SCALE * t[:, None] * frequency
    return torch.cat((torch.cos(angle), torch.sin(angle)), dim=-1)


def modulate(x: Float[Tensor, "b t d"], shift: Float[Tensor, "b 1 d"], scale: Float[Tensor, "b 1 d"]) -> Float[Tensor, "b t d"]:
    """norm(x) (1 + scale) + shift, with a LayerNorm that has no parameters."""
    return F.layer_norm(x, x.shape[-1:], eps=NORM_EPS) * (1 + scale) + shift


def patchify(x: Float[Tensor, "b c h w"], patch: int) -> Float[Tensor, "b t p"]:
    """[b, c, h, w] -> [b, (h / patch)(w / patch), c patch^2]: patches in row-major order, channel first inside a patch."""
    b, c, h, w = x.shape
    x = x.view(b, c, h // patch, patch, w // patch, patch).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(b, (h // patch) * (w // patch), c * patch * patch)


def unpatchify(x: Float[Tensor, "b t p"], patch: int, side: int) -> Float[Tensor, "b c h w"]:
    """The inverse of `patchify` for side x side patches."""
    b, _, p = x.shape
    x = x.view(b, side, side, p // patch**2, patch, patch).permute(0, 3, 1, 4, 2, 5)
    return x.reshape(b, p // patch**2, side * patch, side * patch)
