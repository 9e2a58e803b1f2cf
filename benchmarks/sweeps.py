"""How many sweeps over the microbatches programs need, and which sums wait for their end.

    python benchmarks/sweeps.py FILE...     StableHLO files, plain or gzipped

Of each file, split into the smallest number of microbatches that is possible: the sweeps, the sums
over them, and the bytes of these; or why it cannot be split. docs/proofs.md says which sums wait.
"""

import argparse
import re
from pathlib import Path

from shardc.compiler import prepare
from shardc.cutting import split
from shardc.errors import MicrobatchError
from shardc.importer.from_file import import_file
from shardc.ir.attributes import ACCUMULATE, SWEEPS, call_target, get_str
from shardc.ir.tensor_types import num_bytes
from shardc.ir.walk import main_function, walk

TRIED = (2, 3, 5, 7)


def line(path: Path) -> str:
    """`1 sweep, 44 sums, 433,124 bytes`, or the refusal."""
    module = import_file(path).module
    prepare(module)
    refusal = ""
    for count in TRIED:
        try:
            found = split(module, count, None)
        except MicrobatchError as error:
            refusal = refusal or f"{error.code} {error.message}"
            continue
        with found.context:
            sums = [
                op for op in walk(main_function(found.operation)) if call_target(op) == ACCUMULATE
            ]
            total = sum(num_bytes(value) for op in sums for value in op.results)
        why = get_str(found.operation, SWEEPS) or ""
        said = re.search(r"through (twice|\d+ times)", why)
        sweeps = 1 if said is None else 2 if said[1] == "twice" else int(said[1].split()[0])
        return f"{sweeps} sweep{'s' * (sweeps > 1)}, {len(sums)} sums, {total:,} bytes"
    return refusal


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        print(f"{path.name.split('.mlir')[0]}: {line(path)}", flush=True)


if __name__ == "__main__":
    main()
