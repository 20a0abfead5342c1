import pytest

from perfml.errors import InputError
from perfml.readers import Source, read
from perfml.readers.timing_csv import recognises

HEADER = "iteration,layer,kernel,time_us\n"


def write(tmp_path, text):
    path = tmp_path / "net_timing.csv"
    path.write_text(text)
    return path


def test_the_recorded_timing_pass_is_read(sweep):
    kernels = read(sweep / "yolov4tiny_cudnn_fp32_b1_timing.csv.xz")
    assert len(kernels.frame) == 721
    assert kernels.frame["iteration"].nunique() == 10
    assert kernels.frame["layer"].nunique() == 21
    assert kernels.frame["time_us"].sum() == pytest.approx(8850, rel=0.005)
    assert set(kernels.frame["time_source"]) == {"timing"}


def test_names_with_commas_quotes_and_angle_brackets_survive(tmp_path):
    path = write(tmp_path, HEADER + '0,conv_01,"void f<int, (bool)1>(""x"")",1.5\n0,,copy,2\n')
    frame = read(path).frame
    assert frame["kernel"].tolist() == ['void f<int, (bool)1>("x")', "copy"]
    assert frame["layer"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("zero,conv_01,k,1\n", "column iteration"),
        ("0,a,b,1,extra\n0,a,b,1,x,y\n", ":2: a row does not have the 4 cells"),
        ('0,a,"b,1\n0,a,b",1\n', "quotes that do not close"),
        ("0,a,b,1\n\n1.5,a,b,1\n", ":4: column iteration needs a whole number"),
        ("99999999999999999999,a,b,1\n", "column iteration"),
        ("0,a,,1\n", ":2: a launch has no kernel name"),
    ],
)
def test_a_damaged_timing_pass_is_an_error_that_names_the_file(tmp_path, body, message):
    path = write(tmp_path, HEADER + body)
    with pytest.raises(InputError, match=message) as error:
        read(path)
    assert str(path) in error.value.where


def test_another_csv_is_not_mistaken_for_it(tmp_path):
    assert not recognises(Source(write(tmp_path, "layer,kernel\n1,2\n")))


MOVES = "iteration,layer,kernel,time_us,start_us,bytes\n"


def test_copies_and_fills_go_to_a_kernel_of_their_layer_and_are_no_launches(tmp_path):
    rows = (
        "0,a,first,10,0,\n0,b,second,10,200,\n0,c,third,10,300,\n"
        # before the kernel of its layer, though another layer's may run in between
        "0,b,Memcpy HtoD (Pageable -> Device),100,50,1000000\n"
        # half of it while that kernel runs
        "0,b,Memset (Device),10,205,64\n"
        # of a layer that launches nothing: with the next kernel of the iteration
        "0,z,Memcpy DtoH (Device -> Pinned),40,250,4\n"
        "0,c,Memcpy DtoD (Device -> Device),3,400,8\n"
    )
    frame = read(write(tmp_path, MOVES + rows)).frame
    assert frame["kernel"].tolist() == ["first", "second", "third"]
    assert frame["to_device_us"].tolist() == [0, 100, 0]
    assert frame["to_device_bytes"].tolist() == [0, 1e6, 0]
    assert frame["filled_us"].tolist() == [0, 5, 0]
    assert frame["to_host_us"].tolist() == [0, 0, 40]
    assert frame["copied_us"].tolist() == [0, 0, 3]
    # 190 us from kernel to kernel without the copy of 100; 90 without 5 of the fill and 40
    assert frame["gap_us"].fillna(-1).tolist() == [-1, 90, 45]


def test_what_is_copied_at_the_same_time_counts_once_and_an_unknown_iteration_nowhere(tmp_path):
    rows = (
        "0,a,k,10,0,\n0,a,k,10,100,\n"
        "0,a,Memcpy DtoH (Device -> Pageable),20,20,1\n"
        "0,a,Memcpy HtoD (Pageable -> Device),20,30,2\n"
        "7,a,Memcpy HtoD (Pageable -> Device),20,60,4\n"
    )
    frame = read(write(tmp_path, MOVES + rows)).frame
    assert frame["to_host_us"].tolist() == [0, 20]
    assert frame["to_device_us"].tolist() == [0, 10]
    assert frame["to_device_bytes"].tolist() == [0, 2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("0,a,Memset (Device),1,0,64\n", "no kernel in this timing CSV"),
        ("0,a,k,1,0,\n0,a,Memset (Device),1,0,many\n", "column bytes needs a number"),
        ("0,a,k,1,0,\n0,a,Memset (Device),1,1e300,64\n", ":3: start_us and time_us"),
    ],
)
def test_rows_of_copies_that_cannot_be_are_refused(tmp_path, body, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, MOVES + body))
