"""What a GPU can do: the vendor's tables, and what recorded profiles say of the same devices."""

import math
import re
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

import perfml
from perfml import chips

WARPS = {
    "NVIDIA GeForce GTX 1050 Ti": 64,
    "Tesla V100-SXM2-16GB": 64,
    "Xavier": 64,
    "Tesla T4": 32,
    "NVIDIA GeForce RTX 2080 Ti": 32,
    "NVIDIA A100-SXM4-80GB": 64,
    "NVIDIA A10": 48,
    "NVIDIA GeForce RTX 3090": 48,
    "Orin": 48,
    "NVIDIA GeForce RTX 4090": 48,
    "NVIDIA L40S": 48,
    "NVIDIA H100 80GB HBM3": 64,
    "NVIDIA H200": 64,
    "NVIDIA B200": 64,
    "NVIDIA GB300": 64,
    "Thor": 48,
    "NVIDIA GeForce RTX 5090": 48,
    "NVIDIA GB10": 48,
}
"""A device of every capability, and its resident warps by NVIDIA's guide."""

DATA_SHEETS = {
    # TFLOP/s of FP32 and of FP16 on tensor cores with sums in FP32, TB/s of DRAM
    "Tesla V100-SXM2-16GB": (15.7, 125, 0.900),
    "Tesla T4": (8.1, 65, 0.320),
    "NVIDIA A100-SXM4-40GB": (19.5, 312, 1.555),
    "NVIDIA A10": (31.2, 125, 0.600),
    "NVIDIA A10G": (35, 70, 0.600),
    "NVIDIA A40": (37.4, 149.7, 0.696),
    "NVIDIA GeForce RTX 3090": (35.6, 71, 0.936),
    "NVIDIA L4": (30.3, 121, 0.300),
    "NVIDIA L40S": (91.6, 362, 0.864),
    "NVIDIA GeForce RTX 4090": (82.6, 165.2, 1.008),
    "NVIDIA H100 PCIe": (51, 756, 2.0),
    "NVIDIA H100 80GB HBM3": (67, 989.4, 3.35),
    "NVIDIA H200": (67, 989.4, 4.8),
    "NVIDIA B200": (75, 2250, 7.672),
    "NVIDIA GeForce RTX 5090": (104.8, 209.5, 1.792),
}


@pytest.mark.parametrize(("name", "warps"), WARPS.items())
def test_a_chip_holds_as_many_warps_as_the_guide_says(name, warps):
    assert chips.chip(name).warps == warps


def test_every_capability_has_a_device_here():
    assert {chips.chip(name).capability for name in WARPS} >= set(chips.capabilities()) - {"6.0"}


@pytest.mark.parametrize(("name", "numbers"), DATA_SHEETS.items())
def test_rates_times_clock_are_the_data_sheets_peaks(name, numbers):
    chip = chips.chip(name)
    ours = (chip.peak_flops_per_us("fp32"), chip.peak_flops_per_us("fp16"))
    assert [value / 1e6 for value in ours] == pytest.approx(numbers[:2], rel=0.02)
    assert chip.peak_dram_bytes_per_us() / 1e6 == pytest.approx(numbers[2], rel=0.02)


RECORDED = {
    # device attributes as the raw page of a recorded .ncu-rep has them: multiprocessors, clock
    # (kHz), memory clock (kHz), width (bit), L2 (byte), blocks, registers, shared memory, threads
    "NVIDIA GeForce RTX 2060 SUPER": (34, 1650e3, 7001e3, 256, 4 << 20, 16, 65536, 65536, 1024),
    "NVIDIA GeForce RTX 3070": (46, 1725e3, 7001e3, 256, 4 << 20, 16, 65536, 102400, 1536),
    "NVIDIA A100-SXM4-40GB": (108, 1410e3, 1215e3, 5120, 40 << 20, 32, 65536, 167936, 2048),
    "NVIDIA GeForce RTX 4060 Laptop GPU": (
        *(24, 2370e3, 8001e3, 128, 32 << 20, 24, 65536, 102400, 1536),
    ),
    "NVIDIA H200": (132, 1980e3, 3201e3, 6016, 60 << 20, 32, 65536, 233472, 2048),
}


@pytest.mark.parametrize(("name", "attributes"), RECORDED.items())
def test_the_table_agrees_with_what_devices_say_of_themselves(name, attributes):
    count, clock, memory, bits, l2, blocks, registers, shared, threads = attributes
    chip = chips.chip(name)
    assert (chip.multiprocessors, chip.clock_mhz) == (count, clock / 1e3)
    assert (chip.blocks, chip.registers, chip.warps) == (blocks, registers, threads / 32)
    assert (chip.l2_bytes, chip.shared_bytes) == (l2, shared)
    # two values a clock of the memory
    assert chip.dram_bytes_per_us == pytest.approx(2 * memory / 1e3 * bits / 8, rel=0.01)


def test_what_the_profile_says_goes_before_the_table():
    facts = {"multiprocessors": 66.0, "clock_khz": 1e6, "warps": 16.0, "l2_bytes": float("nan")}
    chip = chips.chip("NVIDIA H200", "9.0", facts)
    assert (chip.multiprocessors, chip.clock_mhz, chip.warps) == (66, 1000, 16)
    assert chip.l2_bytes == 60 << 20
    assert chip.sources["warps"] != chip.sources["blocks"]
    # 66 multiprocessors of 64 lanes, two operations, 1000 cycles a microsecond
    assert chip.peak_flops_per_us("fp64") == 66 * 64 * 2 * 1000


def test_a_launch_is_of_its_own_device():
    facts = {"GPU of tomorrow": {"memory_clock_khz": 8001e3, "memory_bus_bits": 128}}
    row = {"device": "GPU of tomorrow", "compute_capability": "8.9"}
    found = chips.of_launch(row, facts)
    assert (found.name, found.warps) == ("GPU of tomorrow", 48)
    assert found.dram_bytes_per_us == 256_032
    assert chips.of_launch({**row, "device": None}, facts).name is None
    assert chips.of_launch({"device": pd.NA, "compute_capability": None}) == chips.UNKNOWN
    table = pd.DataFrame([row, row])
    table.attrs["device_facts"] = facts
    assert chips.of_table(table) == found


def test_a_table_of_two_devices_has_what_they_agree_in():
    table = pd.DataFrame({"device": ["NVIDIA H200", "NVIDIA H100 80GB HBM3"]})
    both = chips.of_table(table)
    assert both.name is None
    assert (both.warps, both.multiprocessors) == (64, 132)
    assert math.isnan(both.dram_bytes_per_us)
    assert "dram_bytes_per_us" not in both.sources
    assert chips.of_table(table.iloc[:0]) == chips.UNKNOWN


def test_a_device_of_another_vendor_keeps_its_name_and_has_no_capability():
    found = chips.chip("AMD Instinct MI210", "9.0", {"multiprocessors": 104})
    assert (found.name, found.capability) == ("AMD Instinct MI210", None)
    assert math.isnan(found.warps)


def test_a_name_that_is_not_tabulated_leaves_what_its_capability_says():
    laptop = chips.chip("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9")
    assert laptop.warps == 48
    assert math.isnan(laptop.multiprocessors)
    # the table knows a SUPER, which is another card
    assert math.isnan(chips.chip("NVIDIA GeForce GTX 1660").multiprocessors)
    assert math.isnan(chips.chip("Quadro RTX 6000", "7.5").multiprocessors)
    assert math.isnan(chips.chip("NVIDIA H200", "8.0").multiprocessors)
    assert math.isnan(chips.chip(capability="99.0").warps)


def test_a_name_that_products_share_has_what_they_agree_in():
    assert chips.chip("H100").l2_bytes == 50 << 20
    assert math.isnan(chips.chip("H100").multiprocessors)


def test_every_number_has_a_source():
    for chip in (*chips.capabilities().values(), *chips.products().values()):
        numbers = {item.name for item in fields(chip) if item.type == "float"}
        known = {name for name in numbers if not math.isnan(getattr(chip, name))}
        assert known == set(chip.sources)
        assert all(chip.sources.values())


def test_a_load_takes_as_long_as_the_levels_that_it_passes():
    chip = chips.chip(capability="9.0")
    assert chip.load_latency(0, 0) == chip.l1_latency
    assert chip.load_latency(1, 0) == chip.l2_latency
    assert chip.load_latency(0, 1) == chip.dram_latency
    assert math.isnan(chips.UNKNOWN.load_latency(1, 0))


def test_no_other_module_decides_by_a_capability():
    written = re.compile(r"""["'](?:6\.[01]|7\.[025]|8\.[0679]|9\.0|1[0-2]\.[0-3])["']""")
    package = Path(perfml.__file__).parent
    where = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.parent.name != "chips"
        for line in path.read_text(encoding="utf-8").splitlines()
        if written.search(line) and ">>>" not in line
    }
    # that one says on which GPU the published data were recorded
    assert where <= {"datasets/published.py"}


def test_no_other_module_has_a_limit_of_a_multiprocessor():
    written = re.compile(r"(?i)^_?\w*(warps|latency|lanes_of|l2_cycles|dram_cycles)\w* *=.*\d")
    package = Path(perfml.__file__).parent
    where = {
        f"{path.relative_to(package)}: {line}"
        for path in package.rglob("*.py")
        if path.parent.name != "chips"
        for line in path.read_text(encoding="utf-8").splitlines()
        if written.search(line)
    }
    assert where == set()
