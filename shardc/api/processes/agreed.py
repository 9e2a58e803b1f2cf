"""One plan for all processes of a job: rank 0 makes or loads it, the others receive it.

First, the ranks compare what they are about to run; an error names the difference.
"""

import json
import platform
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import jax
import msgspec

from shardc.cluster import Cluster
from shardc.errors import ClusterError, InputError, PlanError, RequestWarning, ShardcError
from shardc.importer.program import Imported
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.plan.executable import Executable
from shardc.plan.stages_spec import StagesSpec
from shardc.runtime.processes.job import Job, this_job
from shardc.runtime.processes.joining import OWN_AUTOTUNING, tunes_alone

PART_BYTES = 1 << 20  # of one value of the coordination service
MOST_BYTES = 1 << 28
SAID = 120  # characters of a fact in an error

Facts = Mapping[str, str]


class ToPlan(Protocol):
    """What is to be planned: the part of `Lowered` that matters here."""

    @property
    def imported(self) -> Imported: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def options(self) -> PlanOptions: ...
    @property
    def devices(self) -> Sequence[jax.Device]: ...
    @property
    def given_plan(self) -> Plan | StagesSpec | None: ...


def agreed_plan(
    find: Callable[[], Plan], asked: ToPlan, digest: str, job: Job | None = None
) -> Plan:
    """The result of `find` on rank 0, returned on every rank.

    Args:
        digest: of the prepared module.
        job: None: the job of this process.
    Raises:
        PlanError: SHARDC-280, a rank is about to plan something else; all ranks raise it.
        ShardcError: what `find` raised on rank 0.
        ClusterError: SHARDC-281, a rank has ended.
    """
    arguments, given = asked.imported.arguments, asked.given_plan
    facts = {
        "versions": f"Python {platform.python_version()}, jax {jax.__version__}, jaxlib"
        f" {version('jaxlib')}, shardc {version('shardc')}",
        "arguments": ", ".join(f"{a.name}: {a.dtype}{list(a.shape)}" for a in arguments),
        "program": digest,
        "options": msgspec.json.encode(asked.options).decode(),
        # Without the memory, in which equal machines differ by a few pages: that of rank 0 counts.
        "cluster": msgspec.json.encode(asked.cluster.with_memory(1)).decode(),
        "devices": str([(d.id, d.process_index, d.device_kind) for d in asked.devices]),
        "given plan": "none" if given is None else _digest(msgspec.json.encode(given)),
    }

    def make() -> bytes:
        return msgspec.json.encode(find())

    return msgspec.json.decode(_agree(job or this_job(), facts, make), type=Plan)


def check_programs(executable: Executable, job: Job | None = None) -> None:
    """PlanError (SHARDC-280) on all ranks if one is about to run different stage programs."""
    facts = {
        f"program {program.name}": _digest(msgspec.json.encode(program))
        for program in executable.programs
    }
    rest = msgspec.structs.replace(executable, programs=())
    _agree(
        job or this_job(), {**facts, "schedule": _digest(msgspec.json.encode(rest))}, lambda: b""
    )


def check_built_for_several(imported: Imported, devices: Sequence[jax.Device]) -> None:
    """Refuses what a job of several processes cannot run yet; warns of what nobody has tried.

    Raises:
        InputError: SHARDC-283.
    """
    if imported.host_calls:
        raise InputError(
            "a program with callbacks to the host runs in one process only so far",
            help="run it in one process that sees all devices",
            code="SHARDC-283",
        )
    if devices[0].platform == "gpu" and not tunes_alone():
        raise InputError(
            "several processes on GPUs compile different programs, and XLA would make each wait"
            " for the others to tune its own",
            help=f"call shardc.initialize() first, or set XLA_FLAGS={OWN_AUTOTUNING}",
            code="SHARDC-283",
        )
    if devices[0].platform != "cpu":
        warnings.warn(
            f"several processes on {devices[0].platform} devices are untested: compare"
            " the results with those of one process",
            RequestWarning,
            skip_file_prefixes=(str(Path(__file__).parents[1]),),
        )


def _agree(job: Job, facts: Facts, make: Callable[[], bytes]) -> bytes:
    """The result of `make` on rank 0, if the facts of all ranks agree.

    Rank 0 sends digests of its facts. The others answer with the facts that differ, so rank 0 reads
    next to nothing from a rank that agrees.
    """
    name = job.new_plan()
    digests = {what: _digest(fact.encode()) for what, fact in facts.items()}
    if job.rank == 0:
        _send(job, f"facts/{name}", json.dumps(digests).encode())
        try:
            _compare(job.collect(f"differ/{name}"), facts)
            answer = b"+" + make()
        except ShardcError as error:
            refusal = {"message": error.message, "help": error.help, "code": error.code}
            _send(job, f"answer/{name}", b"-" + json.dumps(refusal).encode())
            raise
        _send(job, f"answer/{name}", answer)
        return answer[1:]
    first = json.loads(_receive(job, f"facts/{name}"))
    differ = {
        what: facts.get(what, "none")
        for what in dict.fromkeys((*first, *digests))
        if first.get(what) != digests.get(what)
    }
    said = zlib.compress(json.dumps(differ).encode()) if differ else b"same"
    job.coordination.set(f"differ/{name}/{job.rank}", said)
    answer = _receive(job, f"answer/{name}")
    if answer[:1] == b"-":
        refusal = json.loads(answer[1:])
        raise PlanError(refusal["message"], help=refusal["help"], code=refusal["code"])
    return answer[1:]


def _compare(differ: Mapping[int, bytes], facts: Facts) -> None:
    for rank, said in sorted(differ.items()):
        if said == b"same":
            continue
        theirs = json.loads(_unpacked(said, rank))
        what, other = next(iter(theirs.items()))
        own = facts.get(what, "none")
        raise PlanError(
            f"rank {rank} differs from rank 0 in its {what}: {_different(other, own)}"
            f" there, {_different(own, other)} on rank 0",
            help="run the same script, with the same arguments and the same versions of all"
            " packages, on all processes",
            code="SHARDC-280",
        )


def _different(text: str, other: str) -> str:
    """`text` from its first difference on."""
    pairs = enumerate(zip(text, other, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), min(len(text), len(other)))
    start = max(first - SAID // 3, 0)
    return repr(text[start : start + SAID])


def _send(job: Job, key: str, value: bytes) -> None:
    """From rank 0 to all others."""
    packed = zlib.compress(value)
    parts = [packed[i : i + PART_BYTES] for i in range(0, len(packed), PART_BYTES)]
    for number, part in enumerate(parts):
        job.coordination.set(f"{key}/part/{number}", part)
    job.coordination.set(f"{key}/parts", str(len(parts)).encode())


def _receive(job: Job, key: str) -> bytes:
    """What rank 0 has sent."""
    count = int(job.wait(f"{key}/parts"))
    return _unpacked(b"".join(job.wait(f"{key}/part/{number}") for number in range(count)), 0)


def _unpacked(packed: bytes, rank: int) -> bytes:
    unpack = zlib.decompressobj()
    value = unpack.decompress(packed, MOST_BYTES)
    if unpack.unconsumed_tail:
        raise ClusterError(f"rank {rank} sends more than {MOST_BYTES:,} bytes", code="SHARDC-281")
    return value


def _digest(value: bytes) -> str:
    return sha256(value).hexdigest()[:16]
