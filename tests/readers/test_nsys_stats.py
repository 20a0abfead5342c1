"""What ``nsys stats --format csv`` prints: the trace, sums over kernels, and tables for people.

The headers are those of nsys 2021 (``gputrace``, ``gpukernsum``) to 2026 as public programs quote
them; the rows are made up, in the same form.
"""

from __future__ import annotations

import numpy as np
import pytest

from perfml.account.account import ACCOUNT, Account
from perfml.account.audit import CLOCK, IDLE
from perfml.errors import InputError
from perfml.ingest import ingest
from perfml.readers import read

TRACE = (
    "\nNOTICE: Existing SQLite export found: run.sqlite\n\n"
    "Processing [run.sqlite] with [cuda_gpu_trace.py]... \n"
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
    "DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
    "9000,2500,5,64,1,1,128,1,1,16,0.000,0.000,,,,,NVIDIA H200 (0),1,,13,add\n"
    "1000,500,3,,,,,,,,,,4.194,6337.593,Pinned,Device,NVIDIA H200 (0),1,,7,[CUDA memcpy HtoD]\n"
    '1700,4118,4,8,16,1,256,1,1,96,0.033,0.000,,,,,NVIDIA H200 (0),1,,7,"gemm<1>(float *, int)"\n'
)
SUMS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '94.3,82360,2,41180.0,41180.0,41180,41180,0.0,"gemm<1>(float *, int)"\n'
    "5.7,5001,2,2500.5,2500.5,2400,2601,100.0,add\n"
)


def written(tmp_path, text, name="run.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_trace_has_each_launch_in_the_order_it_began(tmp_path):
    found = read(written(tmp_path, TRACE))
    frame = found.frame
    assert frame["kernel"].tolist() == ["gemm<1>(float *, int)", "add"]
    assert frame["time_us"].tolist() == [4.118, 2.5]
    assert frame["grid"].tolist() == ["(8, 16, 1)", "(64, 1, 1)"]
    assert frame["threads"].tolist() == [8 * 16 * 256, 64 * 128]
    assert frame["registers_per_thread"].tolist() == [96, 16]
    assert frame["device"].tolist() == ["NVIDIA H200"] * 2
    assert frame["stream"].tolist() == [7, 13]
    # the copy ended at 1500, the first kernel at 5818
    assert frame["gap_us"].tolist() == pytest.approx([0.2, 3.182])
    assert "shared_memory_per_block" not in frame
    (copied,) = Account.from_dict(found.provenance[ACCOUNT]).busiest.copies
    assert (copied.kind, copied.us, copied.times) == ("to_device", 0.5, 1)


def test_sums_are_means_over_their_launches(tmp_path):
    found = read(written(tmp_path, SUMS))
    assert found.frame["time_us"].tolist() == [41.18, 2.5005]
    assert found.frame["launches"].tolist() == [2, 2]
    assert any("means over 4 launches" in text for text in found.warnings)


def test_sums_by_shape_have_the_shape_and_other_units_are_read(tmp_path):
    text = (
        '"Time(%)","Total Time (us)","Instances","Avg (us)","GridXYZ","BlockXYZ","Name"\n'
        '"100.0","1.5","3","0.5"," 896    1    1"," 256    1    1","add"\n'
    )
    frame = read(written(tmp_path, text)).frame
    assert (frame["grid"][0], frame["block"][0]) == ("(896, 1, 1)", "(256, 1, 1)")
    assert frame["time_us"][0] == 0.5
    assert frame["threads"][0] == 896 * 256


COPIED = (
    "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
    "75.0,300000,3,100000.0,1.0,1,1,0.0,[CUDA memcpy HtoD]\n"
    "25.0,100000,2,50000.0,1.0,1,1,0.0,[CUDA memcpy DtoH]\n"
)
BOTH = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Category,Operation\n"
    '50.0,82360,2,41180.0,CUDA_KERNEL,"gemm<1>(float *, int)"\n'
    "30.0,5001,2,2500.5,CUDA_KERNEL,add\n"
    "15.0,300000,3,100000.0,MEMORY_OPER,[CUDA memcpy HtoD]\n"
    "5.0,100000,2,50000.0,MEMORY_OPER,[CUDA memcpy DtoH]\n"
)
PRINTED = """
max error 0
[5/7] Executing 'gpukernsum' stats report

CUDA Kernel Statistics:

 Time (%)  Total Time (ns)  Instances  Avg (ns)           Name
 --------  ---------------  ---------  --------  ---------------------
     94.3           82,360          2  41,180.0  gemm<1>(float *, int)
      5.7            5,001          2   2,500.5  add

[6/7] Executing 'gpumemtimesum' stats report

CUDA Memory Operation Statistics (by time):

 Time (%)  Total Time (ns)  Count  Avg (ns)       Operation
 --------  ---------------  -----  ---------  ------------------
     75.0          300,000      3  100,000.0  [CUDA memcpy HtoD]
     25.0          100,000      2   50,000.0  [CUDA memcpy DtoH]

CUDA Memory Operation Statistics (by size):

 Total (MB)  Count  Avg (MB)       Operation
 ----------  -----  --------  ------------------
  2,147.484      3     0.175  [CUDA memcpy HtoD]
"""


@pytest.mark.parametrize("text", [f"{SUMS}\n{COPIED}", BOTH, PRINTED], ids=["csv", "both", "text"])
def test_sums_of_kernels_and_copies_are_one_account(text, tmp_path):
    found = read(written(tmp_path, text, "out.txt"))
    assert found.frame["kernel"].tolist() == ["gemm<1>(float *, int)", "add"]
    assert found.frame["time_us"].tolist() == [41.18, 2.5005]
    account = Account.from_dict(found.provenance[ACCOUNT])
    step = account.busiest.step
    assert (step.computing_us, step.copying_us, step.idle_us) == (pytest.approx(87.361), 400.0, 0)
    copied = [(each.kind, each.us, each.times) for each in account.busiest.copies]
    assert copied == [("to_device", 300.0, 3), ("to_host", 100.0, 2)]
    # when they ran is not known: nothing is idle, nor known to be hidden
    assert {IDLE, CLOCK} <= set(account.unknown)


def test_without_kernels_the_copies_are_the_rows(tmp_path):
    lines = TRACE.splitlines(keepends=True)
    for text, times in ((COPIED, [100.0, 50.0]), (lines[4] + lines[6], [0.5])):
        found = read(written(tmp_path, text))
        assert found.frame["time_us"].tolist() == times
        account = Account.from_dict(found.provenance[ACCOUNT])
        assert account.busiest.step.copying_us == pytest.approx(
            sum(times * found.frame["launches"])
        )


def test_the_trace_of_2021_is_read(tmp_path):
    text = (
        "Start(nsec),Duration(nsec),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem,DymSMem,"
        "Bytes,Thru,SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n"
        "10,2000,5,64,1,1,128,1,1,16,0,0,,,,,Tesla V100 (0),1,7,add\n"
    )
    frame = read(written(tmp_path, text)).frame
    assert frame["time_us"].tolist() == [2.0]


def test_of_a_trace_and_sums_in_one_file_the_trace_stays(tmp_path):
    text = TRACE + "\nProcessing [run.sqlite] with [cuda_gpu_kern_sum.py]...\n" + SUMS
    found = read(written(tmp_path, text))
    assert len(found.frame) == 2
    assert any("sums were left out" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRACE[:-20], "run.csv:8"),
        (SUMS.replace("5001", "nan"), "Total Time (ns) is no number"),
        (SUMS.replace(",2,2500.5", ",0,2500.5"), "no launches"),
        (SUMS.replace("Total Time (ns)", "Total Time (weeks)"), "weeks"),
    ],
)
def test_damage_is_named_with_its_line(text, said, tmp_path):
    with pytest.raises(InputError) as error:
        read(written(tmp_path, text))
    assert said in str(error.value)
    assert "nsys stats --report" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "step 1\n\n\nCUDA Kernel Statistics:\n\n Time(%)  Total Time (ns)  Instances\n",
        "Operating System Runtime API Statistics:\n\n Time(%)  Total Time (ns)  Num Calls\n",
        " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total Time (ns)\n",
        "Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n50.0,10,1,10.0,cudaMalloc\n",
    ],
)
def test_statistics_without_launches_name_the_file_that_has_them(text, tmp_path):
    with pytest.raises(InputError, match="a printout of statistics by Nsight Systems") as error:
        read(written(tmp_path, text, "out.txt"))
    assert ".sqlite file" in str(error.value)


def test_times_of_a_trace_go_into_the_counters_of_the_same_program(tmp_path):
    counters = (
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Block Size",'
        '"Grid Size","gpu__time_duration.sum",'
        '"sm__warps_active.avg.pct_of_peak_sustained_active"\n"","","","","","","","us","%"\n'
        '"0","9","app","host","gemm<1>(float *, int)","(256, 1, 1)","(8, 16, 1)","5.0","50.0"\n'
        '"1","9","app","host","add","(128, 1, 1)","(64, 1, 1)","4.0","80.0"\n'
    )
    paths = [written(tmp_path, counters, "net.csv"), written(tmp_path, TRACE, "net.txt")]
    frame = ingest(paths).frame
    assert np.allclose(frame["time_us"], [4.118, 2.5])
    assert frame["ncu_time_us"].tolist() == [5.0, 4.0]
