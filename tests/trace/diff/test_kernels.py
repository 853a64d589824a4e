from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec.kernel import KernelUse
from headway.trace.diff.diff import diff
from headway.trace.diff.kernels import Uses, aligned, compare

NAMES = st.sampled_from(["ampere_gemm", "Cijk_gemm", "triton_poi_fused_add", "layer_norm"])
PLACES = st.sampled_from(["", "blocks.*.attn", "blocks.*.mlp"])
USES = st.lists(
    st.builds(
        KernelUse,
        name=NAMES,
        kind=st.sampled_from(["compute.gemm", "compute.elementwise", "comm.all_reduce"]),
        count=st.integers(1, 50),
        total_ns=st.integers(0, 10**9),
        median_ns=st.just(1),
        operator=st.sampled_from(["", "aten::mm", "aten::add"]),
        module=PLACES,
    ),
    max_size=8,
    unique_by=lambda k: (k.name, k.kind),
)


def use(name: str, ns: int, kind: str = "compute.gemm", operator: str = "", module: str = "", count: int = 10) -> KernelUse:
    return KernelUse(name=name, kind=kind, count=count, total_ns=ns, median_ns=ns // count, operator=operator, module=module)


@given(USES, USES, st.integers(1, 7), st.integers(1, 7), st.integers(0, 10**9))
def test_every_kernel_is_in_one_row_and_rows_add_up(a: list[KernelUse], b: list[KernelUse], n: int, m: int, busy: int) -> None:
    pairs = aligned(a, b)
    assert sorted(k.name + k.kind for p in pairs for k in p.a) == sorted(k.name + k.kind for k in a)
    assert sorted(k.name + k.kind for p in pairs for k in p.b) == sorted(k.name + k.kind for k in b)
    rows, time, overlap, whole = compare(Uses(tuple(a), n, busy), Uses(tuple(b), m, busy // 2))
    assert sum(r.delta_ns for r in rows) == time.delta and time.delta - overlap.delta == whole.delta
    assert all(r.count_ns + r.duration_ns == r.delta_ns for r in rows)


def test_names_first_then_places() -> None:
    a = [use("same", 10), use("sm90_gemm", 30, module="blocks.*.attn", operator="aten::mm"), use("old", 5, operator="aten::conv2d")]
    b = [use("same", 12), use("Cijk", 50, module="blocks.*.attn", operator="aten::mm"), use("new", 6)]
    rows, *_ = compare(Uses(tuple(a), 1, 0), Uses(tuple(b), 1, 0))
    found = {(r.name_a, r.name_b): (r.what, r.matched) for r in rows}
    assert found == {
        ("same", "same"): ("slower", "name"),
        ("sm90_gemm", "Cijk"): ("slower", "module and operator"),
        ("old", ""): ("vanished", ""),
        ("", "new"): ("appeared", ""),
    }


def test_vendors_names_of_one_operator_are_one() -> None:
    pairs = aligned([use("a", 1, operator="aten::cudnn_convolution")], [use("b", 1, operator="aten::miopen_convolution")])
    assert [p.matched for p in pairs] == ["operator"]


def test_a_fused_module_is_one_row_and_another_kernel_of_a_module_is_not() -> None:
    eager = [use("norm", 10, "compute.norm", "aten::layer_norm", "blocks.*"), use("add", 5, "compute.elementwise", "aten::add", "blocks.*")]
    fused = [use("triton_per_fused_add_norm_0", 9, "compute.reduce", "triton_per_fused_add_norm_0", "blocks.*")]
    (pair,) = aligned(eager, fused)
    assert pair.matched == "fused" and len(pair.a) == 2
    other = [use("copy", 9, "compute.copy", "aten::copy_", "blocks.*")]
    assert {p.matched for p in aligned(eager, other)} == {""}


def test_a_kernel_that_one_side_never_runs_is_no_noise() -> None:
    gone = KernelUse(name="gelu", kind="compute.elementwise", count=60, total_ns=6_000, median_ns=100, num_steps=6, deviation_ns=300.0)
    (row,), *_ = compare(Uses((gone,), 6, 0), Uses((), 6, 0))
    assert (row.what, row.verdict, row.count_ns) == ("vanished", "real", -1_000)
    once = KernelUse(name="gelu", kind="compute.elementwise", count=1, total_ns=600, median_ns=600, num_steps=6, deviation_ns=245.0)
    (row,), *_ = compare(Uses((once,), 6, 0), Uses((), 6, 0))
    assert row.verdict == "noise", "in one step of six"


PAIRS = {
    "h100 against mi300x": ("AMD-AGI_TraceLens/tests/traces/h100/{}.json.gz", "AMD-AGI_TraceLens/tests/traces/mi300/{}.json.gz"),
}


@pytest.mark.parametrize(
    "model",
    [
        "Falconsai_nsfw_image_detection__1016002",
        "facebook_timesformer-base-finetuned-k400__1016002",
        "gaunernst_bert-small-uncased__1016001",
    ],
)
def test_matrix_products_of_two_vendors_are_put_together(shared: Path, model: str) -> None:
    a, b = (shared / "traces" / p.format(model) for p in PAIRS["h100 against mi300x"])
    found = diff(a, b)
    products = [k for k in found.kernels if k.kind == "compute.gemm"]
    together = sum(k.a_ns + k.b_ns for k in products if k.name_a and k.name_b)
    assert products and together >= 0.95 * sum(k.a_ns + k.b_ns for k in products)
    assert any(k.name_a.startswith(("sm90", "void cutlass", "sm80", "ampere")) and k.name_b.startswith("Cijk") for k in products)
    everything = sum(k.a_ns + k.b_ns for k in found.kernels)
    assert sum(k.a_ns + k.b_ns for k in found.kernels if k.matched) >= 0.9 * everything


FILES = [
    ("pytorch_ao/tutorials/quantize_vit/bfloat16.json.gz", "pytorch_ao/tutorials/quantize_vit/quant.json.gz"),
    ("pytorch_kineto/docs/traces/before_fix_trace.json", "pytorch_kineto/docs/traces/after_fix_trace.json"),
    ("facebookresearch_HTA/tests/data/trace_compare/base/base.json.gz", "facebookresearch_HTA/tests/data/trace_compare/test/test.json.gz"),
    ("NVIDIA_Megatron-LM/tp2/result/0", "NVIDIA_Megatron-LM/tp2/result/1"),
    ("facebookresearch_param/et_replay/tests/inputs/dlrm_kineto", "NVIDIA_Megatron-LM/tp2/result/0"),
]


@pytest.mark.parametrize(("a", "b"), FILES)
def test_public_pairs_add_up(shared: Path, a: str, b: str) -> None:
    found = diff(shared / "traces" / a, shared / "traces" / b)
    assert sum(c.delta for c in found.buckets) == sum(c.delta for c in found.phases) == found.step.delta
    assert found.step.delta == found.b.step_ns - found.a.step_ns
    back = diff(shared / "traces" / b, shared / "traces" / a)
    assert back.step.delta == -found.step.delta
    assert {c.name: -c.delta for c in back.buckets} == {c.name: c.delta for c in found.buckets}
