"""Every rule finds its own examples; real names that other tools get wrong."""

from __future__ import annotations

import pytest

from headway.spec.breakdown import COMPUTE_CLASSES
from headway.trace import classify, phases

TABLES = {"kernels": classify.KERNELS, "operators": classify.OPERATORS, "collectives": classify.COLLECTIVES, "phases": phases.PHASES}


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [(t, name, rule.value) for t, rules in TABLES.items() for rule in rules for name in rule.examples],
)
def test_examples(table: str, name: str, value: str) -> None:
    assert classify.first(TABLES[table], name) == value


def test_every_class_is_known() -> None:
    for rules in (classify.KERNELS, classify.OPERATORS):
        assert {r.value for r in rules} <= set(COMPUTE_CLASSES)
        assert rules[-1].pattern == ""
        assert all(r.examples for r in rules)


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
        "void multimem_all_reduce_kernel<float>(...)",
        "void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*)",
        "void deep_ep::internode::dispatch<true>(...)",
        "nvshmemi_transfer_rma_put",
        "gloo:all_reduce",
        "rcclGenericKernel",
        "ncclSymkDevKernel_AllReduce_AGxLL_R_f32(ncclSymkDevWorkArgs4K)",
        "void symm_mem::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(...)",
        "void at::native::nvshmem_extension::allToAllV(long, ...)",
        "exchangeSplitAndOffset<true>",
        "_ZN7deep_ep12internode_ll7combineILb0ELi8EEEvPv",
        "void deep_ep::intranode::notify_dispatch<8>(...)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_twoshot_sync<...>(...)",
        "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(...)",
        "mscclKernel_Sum_half_Simple_false",
        "oneccl_allreduce_large_float",
    ],
)
def test_collectives(name: str) -> None:
    assert classify.is_collective(name)


@pytest.mark.parametrize(
    "name",
    ["hipcub_block_reduce_kernel", "hipMemcpyAsync_kernel", "void moe::combine_kernel<float>", "triton_red_fused_sum_2",
     "all_to_all_attention_gemm_epilogue", "void at::native::reduce_kernel<512, 1>", "gemm", "hip_gemm_kernel", "c10d::allreduce_",
     "void at::native::(anonymous namespace)::vectorized_gather_kernel<16>"],
)  # fmt: skip
def test_not_collectives(name: str) -> None:
    assert not classify.is_collective(name)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("CopyHostToDevice", "h2d"),
        ("CopyDeviceToDevice", "d2d"),
    ],
)
def test_copies(name: str, way: str) -> None:
    assert classify.copy(name) == way
