"""The kernel trace of rocprofv3, after the example in AMD's documentation of ROCprofiler-SDK."""

import pytest

from perfml.errors import InputError
from perfml.readers import read

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
        ('{"rocprofiler-sdk-tool": [{"metadata": {}}]}', "--output-format csv"),
        ("Dispatch_ID,GPU_ID,Kernel_Name,SQ_WAVES\n0,4,add,16384\n", "--kernel-trace"),
        ('{"Type":"String","id":"0","value":"add"}\n', "nsys export --type sqlite"),
        ('[{"name": "add", "cat": "cuda", "dur": 1}]', "nsys export --type sqlite"),
    ],
)
def test_other_forms_say_how_to_convert_them(trace, text, cure):
    with pytest.raises(InputError, match=cure):
        read(trace(text))
