"""Exports of Nsight Compute: both pages, units and locales, joined to the kernels of a trace by name and launch."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from headway.report.page import page
from headway.report.terminal import print_breakdown
from headway.spec.breakdown import to_json
from headway.spec.counters import KernelCounters
from headway.spec.errors import TraceError
from headway.trace.beside.counters import function, plain
from headway.trace.explain import explain
from headway.trace.read.file import read
from tests.trace.drawing import span
from tests.trace.drawing import write as kineto

BASE = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")
PREAMBLE = '==PROF== Connected to process 1234 (/usr/bin/python3)\nepoch 1, loss 2.0\n==PROF== Profiling "gemm": 0%....100% - 2 passes\n'
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(Params)"
ADD = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, std::array<char *, 3>>(int, T2, T3)"
Launch = tuple[int, str, dict[str, tuple[str, str]]]  # id, kernel, metric -> value, unit


def quoted(cells: Sequence[str]) -> str:
    return ",".join('"' + c.replace('"', '""') + '"' for c in cells) + "\n"


def base(number: int, name: str) -> list[str]:
    return [str(number), "1234", "python3", "host", name, "1", "7", "(128, 1, 1)", "(80, 2, 1)", "0", "9.0"]


def long(launches: Sequence[Launch]) -> str:
    rows = [
        [*base(n, name), "Command line profiler metrics", metric, unit, value]
        for n, name, m in launches
        for metric, (value, unit) in m.items()
    ]
    return PREAMBLE + "".join(map(quoted, [[*BASE, "Section Name", "Metric Name", "Metric Unit", "Metric Value"], *rows]))


def wide(launches: Sequence[Launch]) -> str:
    metrics = list(launches[0][2])
    units = ["" for _ in BASE] + [launches[0][2][m][1] for m in metrics]
    rows = [[*base(n, name), *(m[k][0] for k in metrics)] for n, name, m in launches]
    return PREAMBLE + "".join(map(quoted, [[*BASE, *metrics], units, *rows])) + "==PROF== Disconnected from process 1234\n"


def metrics(duration: str = "2,500", dram: str = "80.5") -> dict[str, tuple[str, str]]:
    return {
        "dram__bytes_read.sum": ("1,024,000", "byte"),
        "dram__bytes_write.sum": ("1.5", "Mbyte"),
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": (dram, "%"),
        "gpu__time_duration.sum": (duration, "nsecond"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("30.25", "%"),
        "sm__warps_active.avg.pct_of_peak_sustained_active": ("55", "%"),
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("12.5", "%"),
    }


LAUNCHES: list[Launch] = [(0, GEMM, metrics()), (1, ADD, metrics("1,000", "90")), (2, GEMM, metrics("7,500", "40.5"))]


def counters(path: Path, text: str) -> tuple[KernelCounters, ...]:
    path.write_text(text)
    return read(path).counters


@pytest.mark.parametrize("form", [long, wide])
def test_fields(tmp_path: Path, form: object) -> None:
    found = counters(tmp_path / "a.csv", form(LAUNCHES))  # type: ignore[operator]
    assert [c.number for c in found] == [0, 1, 2]
    first = found[0]
    assert (first.name, first.grid, first.block, first.device, first.stream, first.process) == (GEMM, (80, 2, 1), (128, 1, 1), 0, 7, 1234)
    assert (first.duration_ns, first.dram_bytes) == (2500, 2_524_000)
    assert (first.dram_share, first.compute_share, first.tensor_share, first.occupancy) == (0.805, 0.3025, 0.125, 0.55)


def test_both_pages_say_the_same(tmp_path: Path) -> None:
    one, other = counters(tmp_path / "a", long(LAUNCHES)), counters(tmp_path / "a", wide(LAUNCHES))
    assert one == other


def test_sections_of_the_details_page(tmp_path: Path) -> None:
    """`Memory Throughput` is a share in one section and a rate in another; bytes follow from the rate."""
    names = [
        ("Duration", "2.00", "us"), ("Memory Throughput", "70", "%"), ("DRAM Throughput", "60", "%"),
        ("Compute (SM) Throughput", "20", "%"), ("Memory Throughput", "1.50", "Tbyte/s"),
        ("Achieved Occupancy", "33.3", "%"), ("Registers Per Thread", "32", "register/thread"),
    ]  # fmt: skip
    rows = [[*base(0, GEMM), "Section", name, unit, value] for name, value, unit in names]
    text = "".join(map(quoted, [[*BASE, "Section Name", "Metric Name", "Metric Unit", "Metric Value"], *rows]))
    (found,) = counters(tmp_path / "a.csv", text)
    assert (found.duration_ns, found.dram_share, found.compute_share) == (2000, 0.6, 0.2)
    assert found.occupancy == pytest.approx(0.333)
    assert found.dram_bytes == 3_000_000
    assert found.tensor_share is None


@pytest.mark.parametrize(
    ("value", "unit", "ns"),
    [
        ("2,500", "nsecond", 2500), ("2.5", "usecond", 2500), ("2.5", "us", 2500), ("2.5", "ms", 2_500_000), ("2,500.5", "ns", 2500),
        ("0.0025", "msecond", 2500), ("4.0e-05", "second", 40_000), ("1", "s", 10**9), ("2.5", "cycle", None), ("n/a", "ns", None),
        ("", "ns", None), ("-5", "ns", None),
    ],
)  # fmt: skip
def test_units(tmp_path: Path, value: str, unit: str, ns: int | None) -> None:
    (found,) = counters(tmp_path / "a.csv", long([(0, "k", {"gpu__time_duration.sum": (value, unit), "dram__bytes.sum": ("1", "byte")})]))
    assert found.duration_ns == ns


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("2,500", "80.5"), (2500, 0.805)),
        (("2.500", "80,5"), (2500, 0.805)),  # a decimal comma anywhere says what points are
        (("2 500", "80,5"), (2500, 0.805)),
        (("2'500", "80.5"), (2500, 0.805)),
        (("2\u202f500", "80,5"), (2500, 0.805)),
        (("1.234.567,25", "7,25"), (1234567, 0.0725)),
        (("1,234,567.25", "7.25"), (1234567, 0.0725)),
        (("2500", "80"), (2500, 0.8)),
    ],
)
def test_locales(tmp_path: Path, values: tuple[str, str], expected: tuple[int, float]) -> None:
    (found,) = counters(
        tmp_path / "a.csv",
        long([(0, "k", {
            "gpu__time_duration.sum": (values[0], "ns"), "dram__throughput.avg.pct_of_peak_sustained_elapsed": (values[1], "%"),
        })]),
    )  # fmt: skip
    assert found.duration_ns == expected[0]
    assert found.dram_share == pytest.approx(expected[1])


def test_redirected_by_powershell(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(long(LAUNCHES).encode("utf-16"))
    assert len(read(tmp_path / "a.csv").counters) == 3


# ---- joined to a trace ----


def trace(path: Path, *kernels: tuple[str, float, float]) -> Path:
    launches = [span("cuda_runtime", "cudaLaunchKernel", start - 1, 0.5, correlation=i + 1) for i, (_, start, _) in enumerate(kernels)]
    work = [
        span("kernel", name, start, length, pid=0, tid=7, device=0, stream=7, correlation=i + 1)
        for i, (name, start, length) in enumerate(kernels)
    ]
    return kineto(path, [*launches, *work])


def test_joined_by_name_and_launch(tmp_path: Path) -> None:
    """The gemm runs 1 us, 3 us and 9 us; two launches were profiled: 80.5 and 40.5 per cent, weighted 1 to 3."""
    spelled = ADD.replace("(int)", "").replace("char *, 3", "char*, 3")
    kernels = [(GEMM, 10, 1), (spelled, 12, 2), (GEMM, 20, 3), (GEMM, 30, 9), ("other_kernel", 50, 1)]
    (tmp_path / "kernels.csv").write_text(long(LAUNCHES))
    found = explain([trace(tmp_path / "rank0.json", *kernels), tmp_path / "kernels.csv"])
    by_name = {k.name: k for k in found.ranks[0].kernels}
    assert by_name[GEMM].counted == 2
    assert by_name[GEMM].dram_share == pytest.approx((0.805 * 1 + 0.405 * 3) / 4)
    assert by_name[GEMM].dram_bytes == 2_524_000
    assert (by_name[spelled].counted, by_name[spelled].dram_share) == (1, 0.9)
    assert (by_name["other_kernel"].counted, by_name["other_kernel"].dram_share) == (0, None)
    assert "counters_unmatched" not in {h.what for h in found.health}
    data = to_json(found)
    row = next(k for k in data["ranks"][0]["kernels"] if k["name"] == GEMM)
    assert row["compute_share"] == 0.3025
    assert len(data["counters"]) == 3


def test_bare_function_names(tmp_path: Path) -> None:
    launches: list[Launch] = [(0, "vectorized_elementwise_kernel", metrics()), (1, "Kernel2", metrics()), (2, "gone", metrics())]
    (tmp_path / "kernels.csv").write_text(long(launches))
    two = GEMM.replace("relu", "silu")
    found = explain([trace(tmp_path / "rank0.json", (GEMM, 10, 1), (ADD, 12, 2), (two, 20, 3)), tmp_path / "kernels.csv"])
    by_name = {k.name: k for k in found.ranks[0].kernels}
    assert (by_name[ADD].counted, by_name[GEMM].counted, by_name[two].counted) == (1, 0, 0)  # two kernels are called Kernel2
    assert {h.what: h.count for h in found.health}["counters_unmatched"] == 2


@pytest.mark.parametrize(
    ("name", "bare"),
    [(GEMM, "Kernel2"), (ADD, "vectorized_elementwise_kernel"), ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
     ("void (anonymous namespace)::softmax_warp_forward<float, 10, true>(float*)", "softmax_warp_forward")],
)  # fmt: skip
def test_bare_function(name: str, bare: str) -> None:
    assert function(name) == bare


def test_plain_names() -> None:
    assert plain("void f<(int)4, (bool)1, char *>(int, T2)") == plain("f<4, 1, char*>(int,T2)")
    assert plain("f<4>") != plain("f<5>")


def test_shown(tmp_path: Path) -> None:
    (tmp_path / "kernels.csv").write_text(long(LAUNCHES))
    alone = explain([tmp_path / "kernels.csv"])
    out = StringIO()
    print_breakdown(alone, Console(file=out, width=100))
    assert "2 launches, the longest" in " ".join(out.getvalue().split())
    both = explain([trace(tmp_path / "rank0.json", (GEMM, 10, 1)), tmp_path / "kernels.csv"])
    assert '<th class="num">DRAM</th>' in page(breakdown=both)
    assert '<th class="num">DRAM</th>' not in page(breakdown=explain([trace(tmp_path / "rank0.json", (GEMM, 10, 1))]))


# ---- files that are none ----


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("a.ncu-rep", b"NVR\0\1\2\3", "only its own tools"),
        ("a.csv", b"NVR\0\1\2\3", "only its own tools"),
        ("a.nsys-rep", b"\0\1\2", "only its own tools"),
        ("a.csv", PREAMBLE.encode(), "no table of kernels"),
        ("a.csv", quoted(BASE).encode(), "no kernels"),
        ("a.csv", b'"Process ID","Kernel Name","Invocations","Metric Name","Average"\n"1","k","2","Duration","2"\n', "summary"),
    ],
)
def test_refused(tmp_path: Path, name: str, data: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TraceError, match=what):
        explain([tmp_path / name])


def test_output_between_the_rows(tmp_path: Path) -> None:
    lines = long(LAUNCHES).splitlines(keepends=True)
    text = "".join([*lines[:6], "step 3, loss 0.5\n", "==WARNING== Unable to access\n", *lines[6:]])
    path = tmp_path / "a.csv"
    path.write_text(text)
    reading = read(path)
    assert len(reading.counters) == 3
    assert {h.what: h.count for h in reading.health} == {"counter_rows": 1}
