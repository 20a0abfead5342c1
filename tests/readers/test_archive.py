"""The one profile in an archive is read; every other archive says what is in it."""

from __future__ import annotations

import contextlib
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.errors import InputError, PerfmlError
from perfml.readers import archive, read
from perfml.readers import source as sources
from tests.support.archives import PACKED, zip_of
from tests.support.paths import DATA

PROFILE = DATA / "ncu" / "vectors.csv"


def refusal(path) -> str:
    with pytest.raises(InputError) as error:
        read(path)
    text = str(error.value)
    assert len(text.splitlines()) <= 2
    assert text.replace("\n", "").isprintable()
    return text


@pytest.mark.parametrize("name", PACKED)
def test_the_one_profile_among_other_files_is_read_as_it_is(name, tmp_path):
    path = tmp_path / name
    files = {"run/notes.md": b"# slow", "../../etc/run.csv": PROFILE.read_bytes(), "empty": b""}
    path.write_bytes(PACKED[name](files))
    found = read(path)
    assert found.frame.equals(read(PROFILE).frame)
    assert found.provenance["member"] == "../../etc/run.csv"
    assert found.provenance["path"] == name
    assert sorted(each.name for each in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize("name", ["vectors.ncu-rep", "vectors.csv"])
@pytest.mark.parametrize("kind", ["x.tar.gz", "x.zip"])
def test_binary_profiles_are_read_too(name, kind, tmp_path):
    if name.endswith("rep"):
        pytest.importorskip("ncu_report")
    path = tmp_path / kind
    path.write_bytes(PACKED[kind]({name: (DATA / "ncu" / name).read_bytes()}))
    assert len(read(path).frame) == len(read(PROFILE).frame)


@pytest.mark.parametrize("kind", ["x.tar.gz", "x.zip"])
def test_several_profiles_are_no_one_table_and_named_with_the_command_that_unpacks_them(
    kind, tmp_path
):
    path = tmp_path / kind
    path.write_bytes(PACKED[kind]({"a.csv": PROFILE.read_bytes(), "b.csv": PROFILE.read_bytes()}))
    text = refusal(path)
    assert "2 profiles" in text
    assert "a.csv, b.csv" in text
    assert f"{'tar xf' if kind == 'x.tar.gz' else 'unzip'} {kind}" in text


def test_an_archive_without_a_profile_names_what_is_in_it(tmp_path):
    path = tmp_path / "my run; rm x.zip"
    path.write_bytes(zip_of({f"{n}.md\x1b[2J": b"x" for n in range(9)}))
    text = refusal(path)
    assert "no profile" in text
    assert "and 4 more" in text
    assert "unzip 'my run; rm x.zip'" in text


def test_links_and_devices_are_passed_over(tmp_path):
    path = tmp_path / "x.tar"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as found:
        for name, kind in (("a.csv", tarfile.SYMTYPE), ("b.csv", tarfile.CHRTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, str(PROFILE)
            found.addfile(member)
    path.write_bytes(buffer.getvalue())
    assert "no files" in refusal(path)


@pytest.mark.parametrize("kind", ["x.tar.gz", "x.zip"])
def test_a_file_that_unpacks_beyond_measure_is_refused(kind, tmp_path, monkeypatch):
    path = tmp_path / kind
    monkeypatch.setattr(sources, "FREE", 1 << 20)
    monkeypatch.setattr(sources, "RATIO", 2)
    page = PROFILE.read_bytes()
    path.write_bytes(PACKED[kind]({"a.csv": page + page.splitlines(True)[-1] * 4000}))
    assert "larger than" in refusal(path)


def test_an_archive_of_very_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MOST", 3)
    path = tmp_path / "x.zip"
    path.write_bytes(zip_of({str(n): b"" for n in range(4)}))
    assert "more than 3 files" in refusal(path)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_folders_count_towards_what_an_archive_may_hold(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "ENTRIES", 3)
    buffer = io.BytesIO()
    names = [f"{number}/" for number in range(4)]
    if kind == "zip":
        buffer.write(zip_of(dict.fromkeys(names, b"")))
    else:
        with tarfile.open(fileobj=buffer, mode="w") as found:
            for name in names:
                member = tarfile.TarInfo(name)
                member.type = tarfile.DIRTYPE
                found.addfile(member)
    path = tmp_path / f"x.{kind}"
    path.write_bytes(buffer.getvalue())
    assert "more than 3 entries" in refusal(path)


def test_a_locked_archive_says_so(tmp_path):
    path = tmp_path / "x.zip"
    data = bytearray(zip_of({"a.csv": PROFILE.read_bytes()}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "password" in refusal(path)


@given(data=st.data(), kind=st.sampled_from(["x.tar", "x.tar.gz", "x.zip"]))
def test_damage_gives_an_error_and_no_other_numbers(data, kind, tmp_path_factory):
    packed = bytearray(PACKED[kind]({"a.csv": PROFILE.read_bytes()}))
    cut = data.draw(st.integers(4, len(packed)))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(4, len(packed) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / kind
    path.write_bytes(packed[:cut])
    with contextlib.suppress(PerfmlError):
        found = read(path)
        # a plain tar has no sums over what it holds
        assert kind == "x.tar" or found.frame.equals(read(PROFILE).frame)
