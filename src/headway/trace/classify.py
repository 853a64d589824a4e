"""Kernel and operator names -> class of work: ordered tables, first match wins, examples beside each rule (a test runs them).

A name is looked at once a file, however often it occurs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from headway.spec.breakdown import COMPUTE_CLASSES


@dataclass(frozen=True)
class Rule:
    """Names that `pattern` finds (anywhere, any case) are `value`; each example must come out as `value` of the whole table."""

    value: str
    pattern: str
    examples: tuple[str, ...]


# ---- collectives ----

IS_COLLECTIVE: Final = re.compile(
    r"^(void )?(nccl|rccl|hccl|xccl|mscclpp?)|ncclDev|ncclKernel|mscclKernel|^(one)?ccl_|oneccl|userbuffers|nvshmem|symm_?mem|multimem_|"
    r"cross_device_reduce|(one|two)_shot_(all_)?reduce|quick_?(all_?)?reduce|custom_?all_?reduce|lamport.*all_?reduce|"
    r"all_?reduce_(fusion|prototype)|(all_?gather|reduce_?scatter|all_?reduce)_?kernel|all_?to_?all_?(v_?)?(kernel|2d|\b|<|\()|"
    r"^%?(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-(permute|broadcast)|async-collective|send|recv)"
    r"(-start|-done|-scatter|-fusion)*(\.\d+)*( |$)|"
    r"deep_?ep(::|\d)|exchangeSplitAndOffset|cached_notify_|notify_dispatch|^gloo:",
    re.IGNORECASE,
)

COLLECTIVES: Final = (
    Rule(
        "reduce_scatter",
        r"reduce[-_]?scatter",
        ("reduce-scatter.3 (reduce-scatter)", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "_reduce_scatter_base"),
    ),
    Rule(
        "all_gather",
        r"all[-_]?gather",
        ("all-gather-start.1", "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", "_allgather_base", "gloo:all_gather"),
    ),
    Rule(
        "all_to_all",
        r"all[-_]?to[-_]?all|a2a|deep_?ep|(dispatch|combine)|exchangeSplitAndOffset",
        (
            "_ZN7deep_ep9intranode8dispatchILi8EEEv",
            "void allToAllV<4>(...)",
            "exchangeSplitAndOffset<false>",
            "all_to_allv",
            "void deep_ep::internode::dispatch<true>",
            "nvshmem_alltoall",
        ),
    ),
    Rule(
        "all_reduce",
        r"all[-_]?reduce|cross_device_reduce|(one|two)_shot|quick_?reduce|sum_inplace",
        (
            "void quickreduce::allreduce_prototype_twoshot<__half>(...)",
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<...>(...)",
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            "void multimem_all_reduce_kernel<float>(...)",
            "void vllm::cross_device_reduce_1stage<__half, 2>(...)",
            "c10d::allreduce_",
        ),
    ),
    Rule("broadcast", r"broadcast", ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "c10d::broadcast_")),
    Rule("barrier", r"barrier", ("gloo:barrier", "nvshmemi_barrier_all")),
    Rule("send_recv", r"send_?recv", ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",)),
    Rule("send", r"send|put", ("gloo:send", "c10d::send")),
    Rule("recv", r"recv|get", ("gloo:recv", "c10d::recv_")),
    Rule("scatter", r"scatter", ("gloo:scatter",)),
    Rule("gather", r"gather", ("gloo:gather",)),
    Rule("reduce", r"reduce", ("ncclKernel_Reduce_RING_LL_Sum_float(ncclWorkElem)",)),
    Rule("wait", r"wait", ("wait", "_c10d_functional::wait_tensor")),
    Rule("other", r"", ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",)),
)

# ---- kernels of a device ----

KERNELS: Final = (
    # XLA: an op with its category and the operation of the program, as `read/xplane` names it
    Rule("gemm", r"\(.*dot_general\)$", ("fusion.12 (convolution fusion, dot_general)",)),
    Rule(
        "elementwise",
        r"(\((non-fusion elementwise|loop fusion)|^wrapped_)(?!.*(reduce|argm|copy|transpose|dot|conv))",
        ("add_fusion.2 (loop fusion, add)", "wrapped_tanh"),
    ),
    Rule(
        "copy",
        r"^%?copy(-start|-done)?(\.\d+)*( |$)|\(data formatting",
        ("copy-done.2 (copy-done)", "copy", "transpose.7 (data formatting, transpose)"),
    ),
    Rule(
        "optimizer",
        r"fused_?(adam|sgd|lamb|adagrad|lion|muon)|(adam|sgd|lamb|adagrad|lion|muon)_?(functor|kernel|math|w_)|optimi[sz]er|"
        r"multi_tensor_apply_kernel(?!.*(norm|l2|maxop|copy))",
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (ADAM_MODE)1, false>>",
            "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>",
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<1>, "
            "at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 1, 1, 0>>",
        ),
    ),
    Rule(
        "quantize",
        r"quantize|dequant|amax|to_mx|fp8_?(cast|scale)|cast_transpose|scaled_fp8_quant|block_scale_cast",
        (
            "void transformer_engine::detail::cast_transpose_fused_kernel<false>",
            "void vllm::dynamic_per_token_scaled_fp8_quant_kernel",
            "triton_red_fused__to_copy_abs_amax_clamp_div_0",
            "nvfp4_quantize_kernel",
        ),
    ),
    Rule(
        "norm",
        r"^triton_(per|red)_fused.*(norm|rsqrt)",
        (
            "triton_per_fused__to_copy_add_addmm_mean_mul_pow_rsqrt_transpose_view_8",
            "triton_red_fused__unsafe_view_add_addmm_clone_convolution_mul_native_layer_norm_slice_split_transpose_view_12",
            "triton_per_fused_add_native_layer_norm_19",
        ),
    ),
    Rule("reduce", r"^triton_(per|red)_", ("triton_red_fused_mul_sum_2", "triton_per_fused__softmax_clone_4")),
    Rule(
        "copy",
        r"^triton_poi_fused_(_?to_copy|clone|copy|cat|transpose|view|_)*\d*$|reshape_and_cache|multi_tensor_apply_kernel.*copy",
        ("triton_poi_fused__to_copy_clone_4", "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16>"),
    ),
    Rule("elementwise", r"^triton_poi_", ("triton_poi_fused_gelu_17", "triton_poi_fused__scaled_dot_product_efficient_attention_8")),
    Rule(
        "attention",
        r"fmha|flash|attention|attn|sdpa|\bmha|flex_",
        (
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>",
            "fmha_cutlassF_f32_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)",
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_128x64x64_4x1x1_cga1x1x1_kernel0_0",
            "_ZN7ck_tile6kentryILi1ENS_13FmhaFwdKernelINS_34BlockFmhaPipelineQRKSVSAsync",
            "triton_tem_fused_flex_attention_0",
        ),
    ),
    Rule(
        "copy",
        r"nchw_?to_?(folded)?nhwc|nhwc_?to_?(folded)?(nchw|nhwc)|(^|void |::)\w*transpose|direct_copy|copy_device_to_device|"
        r"copy_(async_)?kernel|CatArray|FillFunctor|fill_kernel|memset|memcpy|chunk_cat|split_with_sizes|"
        r"rocclr_(copy|fill)Buffer|dma_request|^aten::(cat|copy_?|clone|_to_copy|fill_?|zero_)\b.*-dtype_",
        (
            "__amd_rocclr_copyBuffer",
            "__amd_rocclr_fillBufferAligned",
            "dma_request",
            "aten::cat.out-dtype_Long-extraKey_1",
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(...)>>",
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>",
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >",
            "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>",
            "batched_transpose_16x32_half",
            "void transpose_readWrite_alignment_kernel<float2, float2, 1, false, 6, 4, 4>(cublasTransposeParams<float2>, float2 const*)",
        ),
    ),
    Rule(
        "conv",
        r"conv(?!er)|winograd|wgrad|dgrad|fprop|scudnn|cask_cudnn|cudnn::cnn|im2col|col2im|im2d|igemm_(fwd|bwd|wrw)|fft[12]d|flip_filter|miopen.*sp3",
        (
            "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>",
            "volta_scudnn_128x64_relu_interior_nn_v1",
            "void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, true, true>",
            "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34",
            "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32_wt32x32x8_ws1x2_wr2x2_ta1x8x2x1",
            "void fft2d_r2c_16x16<float>(float2*, float const*, int)",
            "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>",
        ),
    ),
    Rule(
        "gemm",
        r"(?<!fb)gemm|gemv|^Cijk_|cublas|nvjet|_tensorop_|wgmma|matmul|splitKreduce|epilogue::impl|_mm_|_bmm|addmm|dot_kernel|\bdot\b|tensile|"
        r"tem_fused.*mm|_matmul_|s16816|s1688|machete|marlin|wvSplitK|LLGemm|XDL|^fc(_\w+)?-dtype_",
        (
            "fc-dtype_Float",
            "volta_sgemm_128x64_nn",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>",
            "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT",
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1_SN_LDSB1",
            "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16, __nv_bfloat16, float, __nv_bfloat16, true, true, false>",
            "triton_tem_fused_addmm_3",
            "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
        ),
    ),
    Rule(
        "norm",
        r"(layer|group|batch|instance|rms|ada|weight|qk|l2)_?norm|rmsnorm|\bln_(fwd|bwd)|bn_(fw|bw)|norm2d|RowwiseMoments|"
        r"GammaBeta|cuCompute(GradInput|GradGamma|PartGrad)|ComputeInternalGradients|FusedParams|welford|fused_.*_norm",
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
            "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>",
            "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePass",
            "MIOpenBatchNormFwdTrainSpatial",
            "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float>",
        ),
    ),
    Rule(
        "gather",
        r"(?<!rotary_)embedding|gather|scatter|index|indices|offsets_range|to_dense|take_|masked_select|nonzero|sort|topk|unique|\broll|flip_|permute|DeviceSelect|upsample|grid_sampl",
        (
            "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<...>>",
            "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long>",
            "void bounds_check_indices_kernel<long>(at::GenericPackedTensorAccessor<long, 1ul>)",
            "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false>",
            "void fbgemm_gpu::permute_2D_lengths_kernel<int>",
        ),
    ),
    Rule(
        "reduce",
        r"reduce|softmax|\bsum|argm(ax|in)|loss|criterion|pool|scan|logsumexp|cumsum|norm|l2",
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>>>",
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>",
            "hipcub_block_reduce_kernel",
            "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>",
            "void cub::DeviceScanKernel<cub::AgentScanPolicy<128, 15, int>>",
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<1>, "
            "at::native::(anonymous namespace)::LpNormFunctor<float, (at::native::NormType)1, float, 1, 1, 0>>",
        ),
    ),
    Rule(
        "elementwise",
        r"elementwise|EigenMetaKernel|activation|gelu|silu|relu|dropout|rotary|rope|distribution|random|philox|bernoulli|OpTensor|"
        r"scalePackedTensor|SubTensorOp|pointwise|Functor|addcmul|_add_|_mul_|act_and_mul|"
        r"rocprim::.*transform_|-dtype_",
        (
            "customized_fba_mul_const-dtype_Float",
            "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorConversionOp<Eigen::half>>>>",
            "aten::sqrt.out-dtype_Float",
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >",
            "void at::native::unrolled_elementwise_kernel<at::native::addcmul_cuda_kernel(...)>",
            "void vllm::rotary_embedding_kernel<c10::BFloat16, true>",
            "SubTensorOpWithScalar1d",
            "void vllm::act_and_mul_kernel<c10::BFloat16>",
        ),
    ),
    Rule("custom", r"^triton|^_?[a-z0-9_]+_kernel(_\d+)?$|cute_dsl|tilelang", ("triton_", "triton__0d1d2d3d", "my_own_kernel")),
    Rule("other", r"", ("tiny", "k2")),
)

# ---- operators of a CPU ----

OPERATORS: Final = (
    Rule(
        "optimizer",
        r"^aten::(_fused_(adam|adamw|sgd|adagrad)|_foreach_(?!norm|copy|zero))",
        ("aten::_fused_adamw_", "aten::_foreach_lerp_"),
    ),
    Rule("quantize", r"quantize|dequant|_scaled_.*cast", ("aten::quantize_per_tensor", "aten::fake_quantize_per_channel_affine")),
    Rule(
        "attention",
        r"scaled_dot_product|_flash_attention|_efficient_attention|flex_attention|native_multi_head",
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_flash_attention_for_cpu_backward"),
    ),
    Rule("conv", r"conv|im2col|col2im", ("aten::mkldnn_convolution", "aten::convolution_backward")),
    Rule(
        "gemm",
        r"^(aten|mkldnn|mkl|onednn)::_?(addmm|mm|bmm|baddbmm|addbmm|matmul|linear|addmv|mv|dot|vdot|addr|outer|ger|scaled_mm|grouped_mm|"
        r"scaled_grouped_mm|mkl_linear|linear_pointwise|mkldnn_linear)",
        ("aten::addmm", "aten::mm", "aten::bmm", "aten::_addmm_activation", "mkldnn::_linear_pointwise"),
    ),
    Rule(
        "norm",
        r"(layer|group|batch|instance|rms)_?norm",
        ("aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::_fused_rms_norm", "aten::native_batch_norm"),
    ),
    Rule(
        "other",
        r"^aten::(?!.*(_backward|_copy))(empty|view|reshape|_?unsafe_view|as_strided|t$|transpose|permute|expand|unsqueeze|squeeze|slice|select|narrow|detach|alias|split|"
        r"chunk|unbind|resize|set_|item|_local_scalar_dense|is_|result_type|lift_fresh|resolve_|diagonal|movedim|swapaxes|unfold$|"
        r"_has_|numpy_T|adjoint|new_empty|_reshape_alias|size|stride|to$|contiguous$|conj$|record_stream)|^detach",
        ("aten::view", "aten::empty_strided", "aten::t", "aten::item", "aten::as_strided", "detach_"),
    ),
    Rule(
        "copy",
        r"^aten::(copy_|_copy_from|clone|_to_copy|_cat|cat|concat|stack|zero_|zeros|fill_|full|ones|pad|constant_pad|repeat|roll|flip|"
        r"_foreach_(copy|zero)|split_with_sizes_copy|_chunk_cat)|^fsdp::",
        ("aten::copy_", "aten::cat", "aten::zero_", "aten::fill_", "fsdp::all_gather_copy_in", "aten::_foreach_copy_"),
    ),
    Rule(
        "gather",
        r"^aten::_?(index|gather|scatter|embedding|take|masked_|sort|argsort|topk|nonzero|unique|searchsorted|bucketize|upsample|"
        r"grid_sampl|one_hot)",
        ("aten::index", "aten::index_put_", "aten::embedding_dense_backward", "aten::_index_put_impl_", "aten::topk"),
    ),
    Rule(
        "reduce",
        r"^aten::_?(sum|mean|(max|min)(?!imum)|prod|softmax|log_softmax|logsumexp|var|std|norm\b|linalg_vector_norm|arg(max|min)|all$|any$|"
        r"cumsum|cumprod|nll_loss|mse_loss|cross_entropy|aminmax|amax|amin|foreach_norm|count_nonzero|adaptive_avg_pool|avg_pool|"
        r"median|bincount|histc|equal)",
        (
            "aten::sum",
            "aten::_softmax_backward_data",
            "aten::_log_softmax",
            "aten::linalg_vector_norm",
            "aten::_foreach_norm",
            "aten::mean",
        ),
    ),
    Rule("custom", r"fused_|^triton|^(?!aten|autograd|torch)[a-z0-9_]+::", ("graph_0_cpp_fused_add_0", "mylib::my_op")),
    Rule("elementwise", r"^aten::", ("aten::add_", "aten::mul", "aten::gelu", "aten::silu_backward", "aten::normal_", "aten::pow")),
    Rule("other", r"", ("torch::autograd::AccumulateGrad", "AddmmBackward0")),
)

LEVEL: Final = {name: i for i, name in enumerate(COMPUTE_CLASSES)}


_NAMES: Final = 1 << 16  # remembered: a trace has few names and many rows


def first(table: tuple[Rule, ...], name: str) -> str:
    """The value of the first rule of `table` that finds `name`; every table ends with a rule that finds all."""
    return next(value for value, pattern in _compiled(table) if pattern.search(name))


@cache
def _compiled(table: tuple[Rule, ...]) -> list[tuple[str, re.Pattern[str]]]:
    return [(rule.value, re.compile(rule.pattern, re.IGNORECASE)) for rule in table]


@lru_cache(_NAMES)
def kernel(name: str) -> str:
    """Compute class of a device kernel."""
    return first(KERNELS, name)


@lru_cache(_NAMES)
def operator(name: str) -> str:
    """Compute class of an operator that runs on a CPU."""
    return first(OPERATORS, name)


@lru_cache(_NAMES)
def is_collective(name: str) -> bool:
    """Whether a device kernel (or a Gloo span) is communication."""
    return IS_COLLECTIVE.search(name) is not None


@lru_cache(_NAMES)
def collective(name: str) -> str:
    """all_reduce, all_gather, ... from the name of a kernel, of a host operator or from the argument of one."""
    return first(COLLECTIVES, name)


def is_copy(name: str) -> bool:
    """Whether a device row that its writer calls a kernel is a copy by a copy engine."""
    return name.startswith(("dma_request", "Memcpy ", "CopyHostToDevice", "CopyDeviceToHost", "CopyDeviceToDevice"))


@lru_cache(_NAMES)
def copy(name: str) -> str:
    """A memcpy's way: h2d, d2h, p2p (between devices) or d2d."""
    found = re.search(r"(HtoD|Host_?To_?Device|H2D|M2D)|(DtoH|Device_?To_?Host|D2H|D2M)|(PtoP|Peer_?To_?Peer|P2P)", name, re.IGNORECASE)
    return ("h2d", "d2h", "p2p")[(found.lastindex or 1) - 1] if found else "d2d"
