"""The whole judgement of a run: what cannot be measured is named, the rest is there."""

from __future__ import annotations

from pathlib import Path

from headway.evaluate.judge import judge
from headway.runtime.folder import open_run
from headway.runtime.launch import Place
from headway.spec.parts import DataSpec, ModelSpec, ObserveSpec
from headway.spec.run import RunSpec
from headway.train.run import train

ONE = """
import numpy as np
from headway.data.dataset import ArrayDataset
def one(spec):
    return ArrayDataset("one", np.zeros((1, 1, 8, 8), np.uint8), np.zeros(1, np.int64))
"""


def test_figures_that_the_data_do_not_allow_are_named_and_the_others_are_there(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(ONE)
    spec = RunSpec(
        global_batch=1,
        samples=2,
        model=ModelSpec(depth=1, width=16, heads=1, condition="none"),
        data=DataSpec(name=f"{tmp_path / 'one.py'}:one", size=8, channels=1),
        observe=ObserveSpec(progress="none", peak="h200"),
    )
    assert train(spec, tmp_path / "a", Place()) == 0
    (tmp_path / "reward.py").write_text("def ink(images, asked): return images.mean((1, 2, 3))\n")
    told = judge(open_run(str(tmp_path / "a")), num=4, seed=0, steps=2, guidance=1.0, rewards=[f"{tmp_path / 'reward.py'}:ink"])
    assert list(told["not_measured"]) == ["near copies and variety", "loss by timestep", f"reward {tmp_path / 'reward.py'}:ink"]
    assert told["text"].count("not measured") == 3 and "rewards" not in told
