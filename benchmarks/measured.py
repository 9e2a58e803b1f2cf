"""Predicted against measured step times of other people's runs.

    python benchmarks/measured.py FILE.csv [--sample N] [--seed S] [--format json]

A row is one run of a GPT: num_devices, global_batch, microbatch_size, hidden, heads, layers,
sequence, tensor, data, pipeline and iteration_time_ms (may be empty), if there are such columns
chunks and vocabulary. Each run goes through the whole compiler as a plan by hand
(`measured_plan.py`) and is priced as any plan is: there is no formula here. A row that cannot be
priced says why and is left out of the means.

What the sources do not say is one switch each, the same for all rows: --dropout, --recompute,
--sequence-parallel, --keeps (of what is not recomputed), --float32-sums (of activations, between
devices), --float32-gradients (of weights), and --gradient-overlap. --by-kind says where the
predicted time goes, and which parts of it the errors go with.
"""

import argparse
import csv
import json
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import measured_kinds
import msgspec
from measured_gpt import Gpt
from measured_plan import Replay, Run
from measured_price import Features, Runs, features

from shardc.cluster import Cluster
from shardc.errors import ShardcError

SIZES = (
    "num_devices global_batch microbatch_size hidden heads layers sequence tensor data pipeline"
).split()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--sample", type=int, help="only so many rows, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--cluster", default="a100-megatron", help="a name or a file")
    parser.add_argument("--features", type=Path, help="writes what the fit reads, a line per run")
    parser.add_argument("--dropout", type=float, default=0.1)
    modes = ["full", "selective", "none"]
    parser.add_argument("--recompute", choices=modes, default="full")
    parser.add_argument("--sequence-parallel", action="store_true")
    parser.add_argument("--keeps", choices=["megatron", "least"], default="megatron")
    parser.add_argument("--float32-sums", action="store_true")
    parser.add_argument("--float32-gradients", action="store_true")
    parser.add_argument("--gradient-overlap", type=float)
    parser.add_argument("--by-kind", action="store_true", help="where time and error come from")
    asked = parser.parse_args()
    try:
        cluster = _cluster(asked)
        rows = rows_of(asked.file)
    except (ShardcError, OSError, UnicodeDecodeError, csv.Error) as error:
        print(error, file=sys.stderr)
        return 2
    numbers = list(range(len(rows)))
    if asked.sample is not None and asked.sample < len(rows):
        numbers = sorted(random.Random(asked.seed).sample(numbers, asked.sample))
    runs, kept = [], []
    replay = Replay(cluster)
    for number in numbers:
        found, own = _priced(number, rows[number], replay, asked)
        runs.append(found)
        if own is not None and own.measured_s is not None:
            kept.append(own)
        if asked.features is not None and own is not None:
            with asked.features.open("ab") as file:
                file.write(msgspec.json.encode(own) + b"\n")
        if asked.format == "text":
            print(_text(found), flush=True)
    result: dict[str, Any] = {**score(runs), "runs": runs}
    if asked.by_kind and kept:
        kinds = measured_kinds.by_kind(kept, cluster)
        result["by_kind"] = measured_kinds.as_json(kinds)
        if asked.format == "text":
            print(measured_kinds.text(kinds))
    if asked.format == "json":
        print(json.dumps(result))
    else:
        shown = {n: v for n, v in result.items() if n not in ("runs", "by_kind")}
        print(" ".join(f"{name} {value}" for name, value in shown.items()))
    return 0 if any("predicted_ms" in run for run in runs) else 1


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, by the names of its columns; spaces around names and a mark of the byte
    order in front of them count for nothing.

    Raises:
        OSError, UnicodeDecodeError, csv.Error: it cannot be read as such a file.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, skipinitialspace=True)
        names = [name.strip() for name in next(reader, [])]
        return [dict(zip(names, row, strict=False)) for row in reader if any(row)]


def _cluster(asked: argparse.Namespace) -> Cluster:
    cluster = Cluster.load(asked.cluster)
    changes: dict[str, Any] = {"half_sums": not asked.float32_sums}
    if asked.gradient_overlap is not None:
        changes["gradient_overlap"] = asked.gradient_overlap
    software = msgspec.structs.replace(cluster.device.software, **changes)
    device = msgspec.structs.replace(cluster.device, software=software)
    return msgspec.structs.replace(cluster, device=device)


def _priced(
    number: int, row: dict[str, Any], replay: Replay, asked: argparse.Namespace
) -> tuple[dict[str, Any], Features | None]:
    """A row with what was predicted, or why nothing was; and what the fit reads."""
    known: dict[str, Any] = {"row": number}
    start_s = time.monotonic()
    try:
        run = read(row, asked.dropout, asked.recompute, asked.sequence_parallel, asked.keeps)
        known |= {name: int(float(row[name])) for name in SIZES}
        asks = replay.asks(run)
        found = features(run, asks, replay.cluster)
        (seconds,) = Runs([found], not asked.float32_gradients).predicted_s(replay.cluster)
    except (ShardcError, ValueError) as error:
        return known | {"error": str(getattr(error, "message", error))}, None
    known |= {"predicted_ms": 1e3 * seconds, "measured_ms": run.measured_ms}
    known["activations_gib"] = round(found.activations(asks.kept) / 2**30, 3)
    if run.measured_ms is not None:
        known["relative_error"] = known["predicted_ms"] / run.measured_ms - 1
    known["replay_s"] = round(time.monotonic() - start_s, 2)
    return known, found


def read(
    row: dict[str, Any],
    dropout: float = 0.1,
    recompute: str = "full",
    sequence: bool = False,
    keeps: str = "megatron",
) -> Run:
    """The run that a row describes; ValueError says what is wrong with it."""
    sizes = {name: _count(row, name) for name in SIZES}
    n = sizes["tensor"] * sizes["data"] * sizes["pipeline"]
    if n != sizes["num_devices"]:
        raise ValueError(f"tensor x data x pipeline is {n}, and num_devices {sizes['num_devices']}")
    for many, few in (("hidden", "heads"), ("heads", "tensor")):
        if sizes[many] % sizes[few]:
            raise ValueError(f"{many} {sizes[many]} does not divide into {few} {sizes[few]}")
    if sizes["global_batch"] % (sizes["data"] * sizes["microbatch_size"]):
        raise ValueError(
            f"global_batch {sizes['global_batch']} is not microbatches of"
            f" {sizes['microbatch_size']} on each of {sizes['data']} data ranks"
        )
    chunks = _count(row, "chunks", 1)
    if sizes["layers"] < sizes["pipeline"] * chunks:
        raise ValueError(f"{sizes['layers']} layers are fewer than the stages")
    text = str(row.get("iteration_time_ms") or "").strip()
    measured = float(text) if text else None
    if measured is not None and not (measured > 0 and math.isfinite(measured)):
        raise ValueError(f"iteration_time_ms is {text}")
    gpt = Gpt(
        sizes["layers"],
        sizes["hidden"],
        sizes["heads"],
        sizes["sequence"],
        sizes["global_batch"],
        sizes["tensor"],
        sizes["data"],
        _count(row, "vocabulary", 50257),
        recompute,
        dropout,
        sequence,
        keeps,
    )
    pipeline = sizes["pipeline"]
    return Run(gpt, n, sizes["microbatch_size"], pipeline, chunks, measured)


def _count(row: dict[str, Any], name: str, default: int | None = None) -> int:
    text = str(row.get(name) or "").strip()
    if not text and default is not None:
        return default
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{name} is '{text}', not a number") from None
    if not math.isfinite(number) or number < 1 or number != int(number):
        raise ValueError(f"{name} is {text}, not a whole number from 1 on")
    return int(number)


def score(runs: Iterable[dict[str, Any]]) -> dict[str, float | int | None]:
    """Mean relative error, share of pairs in the right order, and mean regret of choosing by the
    prediction; pairs and choices are among runs of one model, number of devices and batch."""
    known = [run for run in runs if run.get("measured_ms") is not None]
    groups: dict[tuple[int, ...], list[tuple[float, float]]] = defaultdict(list)
    for run in known:
        alike = tuple(run[name] for name in SIZES if name not in VARIED)
        groups[alike].append((run["predicted_ms"], run["measured_ms"]))
    right = pairs = 0
    regrets = []
    for group in groups.values():
        for i, (predicted, measured) in enumerate(group):
            for other_predicted, other_measured in group[:i]:
                if measured != other_measured:
                    pairs += 1
                    right += (predicted - other_predicted) * (measured - other_measured) > 0
        if len(group) > 1:
            regrets.append(min(group)[1] / min(measured for _, measured in group) - 1)
    errors = [abs(run["relative_error"]) for run in known]
    return {
        "mean_relative_error": sum(errors) / len(errors) if errors else None,
        "pairs_in_order": right / pairs if pairs else None,
        "mean_regret": sum(regrets) / len(regrets) if regrets else None,
        "num_pairs": pairs,
        "num_runs": len(known),
    }


VARIED = ("microbatch_size", "tensor", "data", "pipeline")


def _text(run: dict[str, Any]) -> str:
    sizes = " ".join(f"{name} {run[name]}" for name in SIZES if name in run)
    if "error" in run:
        return f"{sizes}: {run['error']}"
    measured, error = run["measured_ms"], run.get("relative_error")
    beside = "" if measured is None else f", measured {measured:.1f} ms, {error:+.1%}"
    kept = f", activations {run['activations_gib']} GiB ({run['replay_s']} s)"
    return f"{sizes}: predicted {run['predicted_ms']:.1f} ms{beside}{kept}"


if __name__ == "__main__":
    sys.exit(main())
