"""Rows of a conformance run: a user's own, each with a fault to plant.

python -m verl_video_tools.loop_check.plant ROWS.parquet TARGET.parquet [--fault NAME ...]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from verl_video_tools.core.errors import UsageError
from verl_video_tools.data.parquet import read_table, write_table
from verl_video_tools.loop_check.faults import FAULTS

NUM_CLEAN = 2
"""Clean rows in every round of faults."""


def planted(table: pa.Table, faults: Sequence[str] = tuple(FAULTS)) -> pa.Table:
    """The rows in their order, with `extra_info.fault`: some clean ones, each fault once, and again.

    Raises:
        UsageError: there is no such fault, no column `extra_info` of named entries, or rows for not even one round.
    """
    if unknown := [name for name in faults if name not in FAULTS]:
        raise UsageError(f"there is no fault {unknown[0]!r}; known are {', '.join(FAULTS)}")
    if "extra_info" not in table.column_names or not pa.types.is_struct(table.schema.field("extra_info").type):
        raise UsageError("the rows have no column extra_info with named entries")
    round_of_faults = [*[None] * NUM_CLEAN, *faults]
    if len(table) < len(round_of_faults):
        raise UsageError(f"{len(table)} rows for {len(round_of_faults)} kinds (clean ones and faults); give more rows")
    infos = table.column("extra_info").to_pylist()
    for number, info in enumerate(infos):
        info["fault"] = round_of_faults[number % len(round_of_faults)]
    index = table.column_names.index("extra_info")
    fields = [field for field in table.schema.field("extra_info").type if field.name != "fault"]
    kind = pa.struct([*fields, pa.field("fault", pa.string())])
    return table.set_column(index, pa.field("extra_info", kind), pa.array(infos, type=kind))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m verl_video_tools.loop_check.plant", description=__doc__)
    parser.add_argument("source", type=Path, help="parquet file of rows for the loop")
    parser.add_argument("target", type=Path, help="parquet file to write")
    parser.add_argument("--fault", action="append", help="plant this one only; repeatable (default: all)")
    options = parser.parse_args(arguments)
    try:
        table = planted(read_table(options.source), options.fault or tuple(FAULTS))
        write_table(table, options.target)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.target}: {len(table)} rows, a round of {NUM_CLEAN + len(options.fault or FAULTS)} for each fault")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
