"""From a run folder to pictures: weights, conditions, guidance_of, keyed noise, the PNG grid."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from headway.runtime import build, folder
from headway.runtime.folder import Run
from headway.runtime.load import Loaded, load_network, load_weights
from headway.runtime.sample import conditions, grid_png, guidance_of, sample, write_bytes
from headway.spec.errors import RunError, SpecError
from headway.spec.parts import EmaSpec, ModelSpec, RoleSpec
from headway.spec.run import RunSpec
from tests.ranks import run_ranks
from tests.train import runs

INFO = {"channels": 1, "size": 8, "num_classes": 10}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three steps of a tiny network, saved."""
    path = tmp_path_factory.mktemp("run")
    spec = runs.small(name=path.name)
    live, *_ = runs.live(spec, path)
    runs.losses(live, 3)
    checkpoints = runs.saving(spec, path / "checkpoints")
    checkpoints.save(build.saved(live.state), samples=48, meta={})
    checkpoints.wait()
    out = Run(path=path, spec=spec, info=INFO)
    folder.write_run(out)
    return out


def test_ema_weights_unless_the_students_are_wanted(run: Run) -> None:
    ema, student = load_network(run), load_network(run, ema=False)
    assert (ema.weights, student.weights, ema.samples) == ("ema", "student", 48)
    assert not ema.network.training and not any(p.requires_grad for p in ema.network.parameters())
    assert not torch.equal(ema.network.patch_in.weight, student.network.patch_in.weight)
    assert torch.equal(load_weights(run)["patch_in.weight"], ema.network.patch_in.weight)
    without = dataclasses.replace(run, spec=dataclasses.replace(run.spec, ema=EmaSpec(half_life=0)))
    assert load_network(without).weights == "student"


def test_a_run_without_a_checkpoint_or_with_another_network_is_said(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no checkpoint that can be used"):
        load_network(dataclasses.replace(run, path=tmp_path))
    deeper = dataclasses.replace(run.spec, model=dataclasses.replace(run.spec.model, depth=3))
    with pytest.raises(RunError, match=r"the checkpoint lacks blocks\.2"):
        load_network(dataclasses.replace(run, spec=deeper))


def test_samples_depend_on_the_seed_and_not_on_the_batch(run: Run) -> None:
    loaded = load_network(run)
    labels, num = conditions(run, classes="3,7", columns=3)
    assert labels["label"].tolist() == [3, 3, 3, 7, 7, 7] and num == 6
    how: dict[str, Any] = {"steps": 3, "guidance": 2.0}
    once = sample(run, loaded, labels, num, seed=1, **how)
    assert once.shape == (6, 1, 8, 8) and abs(once).max() <= 1
    np.testing.assert_allclose(sample(run, loaded, labels, num, seed=1, batch=4, **how), once, atol=1e-5)
    assert abs(sample(run, loaded, labels, num, seed=2, **how) - once).max() > 0.1
    assert abs(sample(run, loaded, labels, num, seed=1, solver="euler", **how) - once).max() > 1e-4


@pytest.mark.parametrize(
    ("classes", "message"), [("10", "0 to 9"), ("-1", "0 to 9"), ("a", "not a list of whole numbers"), ("1;2", "not a list")]
)
def test_classes_that_are_not_there(run: Run, classes: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        conditions(run, classes=classes, columns=1)


def test_all_classes_or_nothing_to_be_told(run: Run) -> None:
    assert conditions(run, classes="", columns=2)[1] == 20
    told = dataclasses.replace(run, spec=dataclasses.replace(run.spec, model=dataclasses.replace(run.spec.model, condition="none")))
    assert conditions(told, classes="", columns=5) == ({}, 5)


def test_what_a_network_is_not_told_is_refused(run: Run) -> None:
    model = dataclasses.replace(run.spec.model, condition="none")
    told = dataclasses.replace(run, spec=dataclasses.replace(run.spec, model=model))
    assert [guidance_of(run, None), guidance_of(run, 3.0), guidance_of(told, None), guidance_of(told, 1.0)] == [2.0, 3.0, 1.0, 1.0]
    with pytest.raises(SpecError, match=r"--guidance 3: this network is told nothing"):
        guidance_of(told, 3.0)
    with pytest.raises(SpecError, match=r"--classes 3: this network is told no class"):
        conditions(told, classes="3", columns=1)


def test_text_vectors_come_from_a_file(run: Run, tmp_path: Path) -> None:
    model = dataclasses.replace(run.spec.model, condition="text", text_dim=4)
    told = dataclasses.replace(run, spec=dataclasses.replace(run.spec, model=model))
    np.save(tmp_path / "v.npy", np.arange(8.0).reshape(2, 4))
    vectors, num = conditions(told, classes="", columns=3, text=tmp_path / "v.npy")
    assert num == 6 and vectors["text"].dtype == np.float32 and vectors["text"][2].tolist() == [0, 1, 2, 3]
    with pytest.raises(SpecError, match="--text"):
        conditions(told, classes="", columns=3)
    for bad in (np.zeros((2, 3)), np.zeros(4)):
        np.save(tmp_path / "w.npy", bad)
        with pytest.raises(SpecError, match=r"must be \[n, 4\]"):
            conditions(told, classes="", columns=3, text=tmp_path / "w.npy")
    (tmp_path / "x.npy").write_bytes(b"no")
    for name in ("x.npy", "none.npy"):
        with pytest.raises(SpecError, match="cannot read text vectors"):
            conditions(told, classes="", columns=3, text=tmp_path / name)


class Straight(torch.nn.Module):
    """v = x_t / t: every path leads to the picture that is 0 everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, t: torch.Tensor, condition: dict[str, torch.Tensor]) -> torch.Tensor:
        return x / t[:, None, None, None]


def test_samples_follow_the_velocity() -> None:
    run = Run(path=Path("x"), spec=RunSpec(), info=INFO)
    loaded = Loaded(network=Straight(), samples=0, weights="ema")
    assert abs(sample(run, loaded, {}, 2, solver="euler", steps=4)).max() < 1e-6


@pytest.mark.parametrize("channels", [1, 3])
def test_the_grid_is_a_png_of_all_pictures(tmp_path: Path, channels: int) -> None:
    images = np.linspace(-1, 1, 5)[:, None, None, None] * np.ones((5, channels, 4, 4), np.float32)
    write_bytes(tmp_path / "deep" / "a.png", grid_png(images.astype(np.float32), 2, scale=3))
    picture = Image.open(io.BytesIO((tmp_path / "deep" / "a.png").read_bytes()))
    assert picture.size == (3 * (2 * 5 + 1), 3 * (3 * 5 + 1)) and picture.mode == ("L" if channels == 1 else "RGB")
    pixels = np.asarray(picture).reshape(48, 33, -1)[..., 0]
    inside = [int(pixels[3 * (1 + 5 * (i // 2)), 3 * (1 + 5 * (i % 2))]) for i in range(6)]
    assert inside == [0, 64, 128, 191, 255, 255], "the last place is empty: white"
    assert (pixels[:3] == 255).all() and [p.name for p in (tmp_path / "deep").iterdir()] == ["a.png"]


OWN = """
import torch
class Own(torch.nn.Linear):
    def __init__(self, size):
        super().__init__(size, size)
        self.register_buffer("frequencies", torch.randn(size), persistent=False)
        self.register_buffer("seen", torch.zeros(()))
    def forward(self, x, t, condition):
        if self.training:
            self.seen += 1
        return super().forward(x) * (1 + torch.cos(self.frequencies * t.reshape(-1, 1, 1, 1)))
def own(model, *, channels, size, num_classes):
    return Own(size)
"""


def buffers(spec: RunSpec, path: str) -> dict[str, torch.Tensor]:
    """Those of a network of the user's own after two steps, which are saved."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    torch.manual_seed(rank)  # whatever a process has drawn before
    live, *_ = runs.live(spec, Path(path), rank=rank)
    runs.losses(live, 2)
    checkpoints = runs.saving(spec, Path(path) / "checkpoints", rank=rank)
    checkpoints.save(build.saved(live.state), samples=32, meta={})
    checkpoints.wait()
    return {n: b.clone() for n, b in live.state.roles["student"].named_buffers()}


@pytest.mark.parametrize("ema", [True, False])
def test_buffers_of_an_own_network_are_those_of_its_training(tmp_path: Path, ema: bool) -> None:
    (tmp_path / "net.py").write_text(OWN)
    spec = runs.small(model=ModelSpec(name=f"{tmp_path / 'net.py'}:own", condition="none"), mesh=runs.layout(2))
    ranks = run_ranks(buffers, 2, spec, str(tmp_path))
    assert torch.equal(ranks[0]["frequencies"], ranks[1]["frequencies"]) and ranks[0]["seen"] == 2
    own = Run(path=tmp_path, spec=spec, info=INFO | {"num_classes": 0})
    torch.manual_seed(7)
    used = dict(load_network(own, ema=ema).network.named_buffers())
    assert all(torch.equal(used[n], ranks[0][n]) for n in ranks[0])
    taught = dataclasses.replace(spec, mesh=runs.layout(1), roles=(RoleSpec(name="teacher", init="somewhere"),))
    live, *_ = runs.live(taught, tmp_path, load_role=lambda role: load_weights(own, ema=ema))
    assert live.state.roles["teacher"].seen == 2, "a role has them too"
