"""The flow-matching loss: its value where it is known, its draws, its independence of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from headway.diffusion import objective, path, schedule
from headway.kernels.draw import Draw
from headway.nn.dit import DiT
from headway.nn.init import init_weights
from headway.spec.errors import SpecError
from headway.spec.parts import ObjectiveSpec
from tests.diffusion import gaussian


class Field(nn.Module):
    """A network that is a given function; it remembers what it was told."""

    def __init__(self, field: object) -> None:
        super().__init__()
        self.field, self.told = field, {}

    def forward(self, x: Tensor, t: Tensor, condition: Mapping[str, Tensor]) -> Tensor:
        self.told = dict(condition)
        return self.field(x, t)  # type: ignore[no-any-return, operator]


def draw(num: int, seed: int = 0) -> Draw:
    return Draw(seed, "test", torch.arange(num), torch.zeros(num, dtype=torch.int64))


def batch(num: int, size: int = 8, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    d = draw(num, seed=1)
    return {"image": d.normal("image", (1, size, size), dtype=dtype).tanh(), "label": torch.arange(num) % 10}


def dit() -> DiT:
    net = DiT(depth=2, width=32, heads=4, patch=2, mlp_ratio=2.0, channels=1, size=8, num_classes=10)
    init_weights(net, seed=0, mode="perturbed")
    return net.double()


@pytest.mark.parametrize("spec", [ObjectiveSpec(schedule="uniform"), ObjectiveSpec(logit_mean=-0.3, shift=2.0)])
def test_the_best_network_is_left_with_the_variance_that_theory_gives(spec: ObjectiveSpec) -> None:
    num = 4096
    image = gaussian.MEAN + gaussian.STD * draw(num, seed=1).normal("image", (1, 4, 4), dtype=torch.float64)
    loss = objective.build(spec)
    out = loss({"student": Field(gaussian.optimal)}, {"image": image}, draw(num))
    expected = gaussian.residual(schedule.timesteps(spec, draw(num).uniform("timestep")).double())
    assert out.count == num * 16
    assert abs(out.loss_sum / out.count - expected.mean()) < 5 * expected.mean() * (2 / out.count) ** 0.5
    worse = loss({"student": Field(lambda x, t: gaussian.optimal(x, t) + 0.1)}, {"image": image}, draw(num))
    assert abs((worse.loss_sum - out.loss_sum) / out.count - 0.01) < 2e-3


def test_the_loss_is_written_out() -> None:
    spec, x = ObjectiveSpec(condition_dropout=0.0), batch(5)
    d = draw(5)
    field = Field(lambda x, t: 0.5 * x + t.view(-1, 1, 1, 1))
    out = objective.build(spec)({"student": field}, x, d)
    t, eps = schedule.timesteps(spec, d.uniform("timestep")), d.normal("noise", (1, 8, 8))
    error = (0.5 * path.interpolate(x["image"], eps, t) + t.view(-1, 1, 1, 1) - (eps - x["image"])) ** 2
    torch.testing.assert_close(out.loss_sum, error.sum())
    torch.testing.assert_close(out.per_sample, error.mean((1, 2, 3)))
    assert torch.equal(out.t, t) and out.count == error.numel()
    assert list(field.told) == ["label"] and torch.equal(field.told["label"], x["label"])


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_parts_of_a_batch_sum_to_the_whole(cut: int) -> None:
    spec, net, x = ObjectiveSpec(condition_dropout=0.5), dit(), batch(8, dtype=torch.float64)
    loss = objective.build(spec)

    def run(part: slice) -> tuple[objective.LossOut, Tensor]:
        net.zero_grad()
        out = loss({"student": net}, {k: v[part] for k, v in x.items()}, draw(8).take(part))
        out.loss_sum.backward()
        return out, torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    (whole, g), (a, g_a), (b, g_b) = run(slice(None)), run(slice(cut)), run(slice(cut, None))
    assert torch.equal(whole.t, torch.cat((a.t, b.t)))
    torch.testing.assert_close(whole.per_sample, torch.cat((a.per_sample, b.per_sample)), rtol=0, atol=1e-12)
    torch.testing.assert_close(whole.loss_sum, a.loss_sum + b.loss_sum, rtol=1e-12, atol=0)
    torch.testing.assert_close(g, g_a + g_b, rtol=0, atol=1e-10 * float(g.abs().max()))
    assert whole.count == a.count + b.count


def test_condition_dropout_takes_its_share_by_sample() -> None:
    num = 10_000
    x = {"image": torch.zeros(num, 1, 1, 1), "label": torch.zeros(num, dtype=torch.int64)}
    field = Field(lambda x, t: x)
    objective.build(ObjectiveSpec(condition_dropout=0.1))({"student": field}, x, draw(num))
    drop = field.told["drop"]
    assert abs(drop.double().mean() - 0.1) < 5 * (0.09 / num) ** 0.5
    t = draw(num).uniform("timestep")
    assert abs(t[drop].mean() - 0.5) < 0.05  # which samples are dropped says nothing of their timesteps


def test_a_batch_without_conditions_has_nothing_to_drop() -> None:
    field = Field(lambda x, t: x)
    objective.build(ObjectiveSpec(condition_dropout=0.5))({"student": field}, {"image": torch.zeros(2, 1, 4, 4)}, draw(2))
    assert field.told == {}


def test_a_text_vector_is_told_too() -> None:
    field = Field(lambda x, t: x)
    x = {"image": torch.zeros(2, 1, 4, 4), "text": torch.randn(2, 6), "sample_id": torch.arange(2)}
    objective.build(ObjectiveSpec())({"student": field}, x, draw(2))
    assert list(field.told) == ["text", "drop"]


def test_bf16_predictions_are_judged_in_float32() -> None:
    out = objective.squared_error(torch.zeros(2, 3, dtype=torch.bfloat16), torch.full((2, 3), 1.001), torch.zeros(2))
    assert out.loss_sum.dtype == torch.float32
    torch.testing.assert_close(out.loss_sum, torch.tensor(6 * 1.001**2))


OWN = """
from headway.diffusion.objective import squared_error


def between(spec):
    def loss(roles, batch, draw):
        t = draw.uniform("timestep")
        x = batch["image"]
        return squared_error(roles["student"](x, t, {}), spec.options["share"] * roles["reference"](x, t, {}), t)

    return loss


def nothing(spec):
    return None
"""


def test_a_users_objective(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    loss = objective.build(ObjectiveSpec(name=f"{file}:between", options={"share": 0.5}))
    roles = {"student": Field(lambda x, t: x), "reference": Field(lambda x, t: 4 * x)}
    out = loss(roles, {"image": torch.ones(2, 1, 2, 2)}, draw(2))
    assert out.loss_sum == 8 and out.count == 8


def test_refusals(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    with pytest.raises(SpecError, match="returned NoneType, not a function"):
        objective.build(ObjectiveSpec(name=f"{file}:nothing"))
    with pytest.raises(SpecError, match="'edm' is not known"):
        objective.build(ObjectiveSpec(name="edm"))
