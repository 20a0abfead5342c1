"""A small rocpd database, as lines of SQL: two processes, three dispatches and a copy."""

import sqlite3
from contextlib import closing

_SIZES = ", ".join(f"{what}_size_{axis}" for what in ("workgroup", "grid") for axis in "xyz")


def lines(missing: int = 0) -> list[str]:
    """Return the database as SQL, with so many dispatches left out in its first process."""
    columns = "id, agent_id, kernel_id, dispatch_id, queue_id, start, end, group_segment_size"
    tables = {
        "rocpd_info_agent": "id, absolute_index, name, product_name",
        "rocpd_info_kernel_symbol": "id, kernel_name, display_name, arch_vgpr_count",
        "rocpd_kernel_dispatch": f"{columns}, {_SIZES}",
        "rocpd_memory_copy": "start, end, dst_agent_id, src_agent_id",
    }
    made = []
    for process, dispatches in (("_0000aaaa_11", (1, 2 + missing)), ("_0000bbbb_22", (7,))):
        made += [f"CREATE TABLE {table}{process}({names})" for table, names in tables.items()]
        made += [
            f"INSERT INTO rocpd_info_agent{process} VALUES (4, 2, 'gfx942', 'AMD Instinct MI300X')",
            f"INSERT INTO rocpd_info_kernel_symbol{process} VALUES (9, '_Z4g.kd', 'gemm(int)', 8)",
        ]
        made += [
            f"INSERT INTO rocpd_kernel_dispatch{process} VALUES ({number}, 4, 9, {number}, 1, "
            f"{number}00000, {number}20000, 512, 256, 1, 1, 65536, 2, 1)"
            for number in dispatches
        ]
    return [*made, "INSERT INTO rocpd_memory_copy_0000aaaa_11 VALUES (130000, 140000, 4, 0)"]


def write(path, missing: int = 0):
    """Write the database, and return its path."""
    with closing(sqlite3.connect(path)) as connection:
        for line in lines(missing):
            connection.execute(line)
        connection.commit()
    return path
