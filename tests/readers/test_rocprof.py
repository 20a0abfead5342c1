"""What rocprofv3 writes, after the examples in AMD's documentation of ROCprofiler-SDK."""

import contextlib
import re
import sqlite3
from dataclasses import replace

import msgspec
import pytest

from perfml.account.account import Account
from perfml.account.audit import AUDIT, IDLE, LAUNCH_BOUND, Audit
from perfml.account.causes import causes
from perfml.errors import InputError
from perfml.explain.advice.network import step_findings
from perfml.explain.remedies import of_account, remedy_for
from perfml.readers import read
from tests.support import rocpd
from tests.support.torch_trace import Trace

HEADER = (
    '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name",'
    '"Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size",'
    '"VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y",'
    '"Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
)
SECOND = (
    '"KERNEL_DISPATCH","Agent 4",1,1,852831,2,13,"subtract(float*, int)",'
    "2,1551874061259214,1551874061270254,512,0,8,0,16,64,1,1,1000,1024,1\n"
)
FIRST = (
    '"KERNEL_DISPATCH","Agent 4",1,1,852831,1,10,"void add<float>(float*, int)",'
    "1,1551874061244694,1551874061255734,0,0,8,0,16,64,1,1,1024,1024,1\n"
)


@pytest.fixture
def trace(tmp_path):
    def made(text):
        path = tmp_path / "1_kernel_trace.csv"
        path.write_text(text)
        return path

    return made


def test_launches_are_in_order_of_start_with_grids_in_workgroups(trace):
    frame = read(trace(HEADER + SECOND + FIRST)).frame
    assert frame["kernel"].tolist() == ["void add<float>(float*, int)", "subtract(float*, int)"]
    assert frame["time_us"].tolist() == pytest.approx([11.04, 11.04])
    assert frame["start_us"].tolist() == pytest.approx([0.0, 14.52])
    assert frame["gap_us"].iloc[1] == pytest.approx(14.52 - 11.04)
    # 1000 work-items in groups of 64 are 16 groups, of which the last is not full
    assert frame["grid"].tolist() == ["(16, 1024, 1)"] * 2
    assert frame["shared_memory_per_block"].tolist() == [0, 512]
    assert frame["layer"].isna().all()


@pytest.mark.parametrize(
    "line",
    [
        FIRST[:90],
        FIRST.replace("1024,1024", "x,1024"),
        FIRST.replace("64,1,1,", "0,1,1,"),
        FIRST.replace("1024,1024", "10\r24,1024"),
        FIRST.replace("1024,1024", f"{10**400},1024"),
    ],
)
def test_a_damaged_line_is_named(trace, line):
    with pytest.raises(InputError, match=r"csv:3: a line of the kernel trace cannot be read"):
        read(trace(HEADER + SECOND + line))


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ('{"Type":"String","id":"0","value":"add"}\n', "nsys export --type sqlite"),
        ('[{"name": "add", "cat": "cuda", "dur": 1}]', "nsys export --type sqlite"),
    ],
)
def test_other_forms_say_how_to_convert_them(trace, text, cure):
    with pytest.raises(InputError, match=cure):
        read(trace(text))


COUNTED = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size",'
    '"Kernel_Id","Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count",'
    '"Accum_VGPR_Count","SGPR_Count","Counter_Name","Counter_Value","Start_Timestamp",'
    '"End_Timestamp"\n'
)


def counted(dispatch, name, counter, value, start, end):
    return (
        f'{dispatch},{dispatch},"Agent 4",1,7,7,1048576,{dispatch},"{name}",64,512,0,8,0,16,'
        f'"{counter}",{value},{start},{end}\n'
    )


def test_counters_of_a_dispatch_are_columns_of_its_row(trace):
    rows = [
        counted(2, "subtract(float*, int)", "SQ_WAVES", "16384.000000", 5000, 9000),
        counted(1, "void add<float>(float*, int)", "SQ_WAVES", "100.000000", 1000, 3500),
        counted(1, "void add<float>(float*, int)", "GRBM_COUNT", "7.5e+01", 1000, 3500),
        # once more, of another part of the chip
        counted(1, "void add<float>(float*, int)", "SQ_WAVES", "23.000000", 1000, 3500),
    ]
    kernels = read(trace(COUNTED + "".join(rows)))
    frame = kernels.frame
    assert frame["kernel"].tolist() == ["void add<float>(float*, int)", "subtract(float*, int)"]
    assert frame["time_us"].tolist() == [2.5, 4.0]
    assert frame["SQ_WAVES"].tolist() == [123.0, 16384.0]
    assert frame["GRBM_COUNT"].iloc[0] == 75.0
    assert frame["GRBM_COUNT"].isna().tolist() == [False, True]
    assert frame["threads"].tolist() == [1048576.0] * 2
    assert frame["grid"].isna().all()
    assert any("AMD's names" in text for text in kernels.warnings)
    # kernels ran one by one for the counters: time between them is the profiler's
    assert "step" not in kernels.provenance
    assert "step" in read(trace(HEADER + FIRST + SECOND)).provenance


@pytest.mark.parametrize("value", ["", "x", "nan", "1e999"])
def test_a_counter_that_is_no_number_names_its_line(trace, value):
    with pytest.raises(InputError, match=r"csv:2: a line of the kernel trace cannot be read"):
        read(trace(COUNTED + counted(1, "add", "SQ_WAVES", value, 1, 2)))


PMC_PERF = (
    "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,"
    "Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,"
    "End_Timestamp,Correlation_ID,SQ_WAVES,SQ_INSTS_VALU\n"
    '0,4,1,9,9,1048576,256,1024,0,12,0,16,64,"vecCopy(double*, int) [clone .kd]",100,2100,0,'
    "16384.0,229376\n"
)


def test_rocprofiler_computes_columns_are_counters(trace):
    (row,) = read(trace(PMC_PERF)).frame.to_dict("records")
    assert row["kernel"] == "vecCopy(double*, int) [clone .kd]"
    assert (row["time_us"], row["SQ_WAVES"], row["SQ_INSTS_VALU"]) == (2.0, 16384.0, 229376.0)
    assert (row["registers_per_thread"], row["shared_memory_per_block"]) == (12.0, 1024.0)


def test_what_was_launched_is_no_counter_of_any_pass(trace):
    # rocprofiler-compute joins its passes: the second one's columns have a number
    head, row = PMC_PERF.splitlines()
    text = f"{head},wave_size,obj,wave_size_1,obj_1\n{row},64,0x7fab361b4ec0,64,0x7fcef8488ec0\n"
    frame = read(trace(text)).frame
    assert [name for name in frame if name.startswith(("SQ_", "obj", "wave"))] == [
        "SQ_INSTS_VALU",
        "SQ_WAVES",
    ]


def test_times_with_parts_of_a_nanosecond_are_read(trace):
    text = PMC_PERF.replace(",100,2100,", ",41551790928449.54,41551790930449.75,")
    assert read(trace(text)).frame["time_us"].tolist() == [2.0]


def test_a_database_of_rocprofv3_has_dispatches_of_all_processes_and_its_copies(tmp_path):
    kernels = read(rocpd.write(tmp_path / "run_results.db"))
    frame = kernels.frame
    assert kernels.provenance["format"] == "rocpd"
    assert frame["kernel"].tolist() == ["gemm(int)"] * 3
    assert frame["time_us"].tolist() == [20.0] * 3
    assert frame["device"].unique().tolist() == ["AMD Instinct MI300X"]
    assert frame["grid"].tolist() == ["(256, 2, 1)"] * 3
    # between 120 and 200 us passes a copy of 10 us
    assert frame["gap_us"].tolist()[1:] == [70.0, 480.0]
    (device,) = kernels.provenance["step"]["devices"]
    assert device["step"]["copying_us"] == 10.0
    assert AUDIT not in kernels.provenance


def test_no_line_of_another_vendors_tool_is_advised_for_an_amd_device(tmp_path):
    kernels = read(rocpd.write(tmp_path / "run_results.db"))
    account = Account.from_dict(kernels.provenance["step"])
    lines = [one.command for one in step_findings(account)]
    assert any(line.startswith("rocprofv3 ") for line in lines)
    assert not any(line.startswith("nsys") for line in lines)


@pytest.mark.parametrize("name", ["AMD Instinct MI300X", ""])
def test_no_remedy_of_cuda_is_offered_for_a_pytorch_trace_of_an_amd_device(tmp_path, name):
    trace = Trace(deviceProperties=[{"id": 0, "name": name, "computeMajor": 9, "warpSize": 64}])
    for at in range(8):
        trace.launch("Cijk_gemm_f32", 100 * at, 100 * at + 20, 60)
        trace.events[-1]["name"] = "hipLaunchKernel"
    path = tmp_path / "trace.json"
    path.write_bytes(trace.data())
    kernels = read(path)
    account = Account.from_dict(kernels.provenance["step"])
    assert account.amd
    assert kernels.frame["device"].iloc[0].startswith("AMD")
    said = [remedy_for(row.id, of_account(account)).text for row in causes()]
    assert not [text for text in said if re.search(r"cublas|TF32_|nvcc|nsys|\bncu\b", text)]
    here = of_account(replace(account, pytorch=False))
    said = [remedy_for(row.id, here).text for row in causes()]
    assert not [text for text in said if re.search(r"cu(da|blas)[A-Z]|nvcc|nsys|\bncu\b|nv_", text)]


def test_dispatches_that_are_missing_leave_idle_time_unknown(tmp_path):
    audit = msgspec.convert(read(rocpd.write(tmp_path / "a.db", 48)).provenance[AUDIT], Audit)
    assert [(fact.id, fact.count, fact.of) for fact in audit.facts] == [
        ("missing_dispatches", 48, 51)
    ]
    assert audit.unknown == {IDLE, LAUNCH_BOUND}


STATS = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n'


def test_sums_by_kernel_are_means_over_their_launches(trace):
    frame = read(
        trace(STATS + '"mul(float*, int)",5,17158055,3431611,94.5\n"add.kd",10,100,10,5\n')
    )
    frame = frame.frame
    assert frame["kernel"].tolist() == ["mul(float*, int)", "add"]
    assert frame["launches"].tolist() == [5, 10]
    assert (frame["time_us"] * frame["launches"]).tolist() == pytest.approx([17158.055, 0.1])


def test_sums_of_api_calls_are_no_kernels(trace):
    with pytest.raises(InputError, match="API calls"):
        read(trace(STATS + '"hipMemcpy",5,17158055,3431611,94.5\n"KERNEL_DISPATCH",1,1,1,1\n'))


def test_rows_of_the_first_rocprof_are_dispatches(trace):
    head = '"Index","KernelName","gpu-id","queue-id","grd","wgr","lds","BeginNs","EndNs"\n'
    frame = read(trace(head + '0,"add.kd",2,0,1024,64,512,1000,4000\n')).frame
    assert frame["time_us"].tolist() == [3.0]
    assert frame["threads"].tolist() == [1024]


def test_a_table_of_dispatches_under_another_name_is_one_error(tmp_path):
    path = tmp_path / "run_results.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("create table rocpd_kernel_dispatch_other (id integer)")
    with pytest.raises(InputError):
        read(path)
