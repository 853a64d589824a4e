"""Positions of a square grid of tokens: sine and cosine codes added to tokens, and rotations of queries and keys.

Both stand on the same angles: frequency i of n is base^(-i/n), and half of the channels follows the row, half the column. Tables are
computed where they are used, not kept as buffers: a few small operations a forward pass, and nothing to materialise, shard or save.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def angles(side: int, num: int, base: float, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "t two_num"]:
    """Row angles, then column angles, of the side x side tokens in row-major order: [side^2, 2 num]."""
    index = torch.arange(num, device=device, dtype=dtype)
    a = torch.arange(side, device=device, dtype=dtype)[:, None] * base ** (-index / num)
    rows, columns = a[:, None].expand(side, side, num), a[None].expand(side, side, num)
    return torch.cat((rows, columns), dim=-1).reshape(side * side, 2 * num)


def grid_code(side: int, width: int, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "t width"]:
    """Fixed code of each token, [side^2, width]; width is a multiple of 4. Source: Peebles and Xie 2023 (DiT), base 10000."""
    a = angles(side, width // 4, 10_000.0, device, dtype)
    return torch.cat((torch.sin(a), torch.cos(a)), dim=-1)


def rotary(side: int, head_dim: int, device: torch.device, dtype: torch.dtype) -> tuple[Float[Tensor, "t pairs"], Float[Tensor, "t pairs"]]:
    """Cosine and sine of the rotation of each pair of channels, [side^2, head_dim / 2] each; head_dim is a multiple of 4.

    Source: Su et al. 2021 (RoPE), in two dimensions as Heo et al. 2024, with their base of 100 for images.
    """
    a = angles(side, head_dim // 4, 100.0, device, dtype)
    return torch.cos(a), torch.sin(a)


def rotate(
    x: Float[Tensor, "b t heads head_dim"], cos: Float[Tensor, "t pairs"], sin: Float[Tensor, "t pairs"]
) -> Float[Tensor, "b t heads head_dim"]:
    """Each pair (x_i, x_{i + head_dim/2}) turned by its angle, in the wider of the two number formats, given back in that of x."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]  # the same for all heads
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)
