"""The plans that a person would write by hand, derived from a program's plan."""

from collections.abc import Iterator, Sequence

from shardc.cluster import Cluster
from shardc.plan.account import Account, ArgumentKind, PlacedArgument
from shardc.plan.decisions import Plan
from shardc.plan.stages_spec import Patterns, StageSpec, StagesSpec

DATA, MODEL = "data", "model"
ROUNDS = (4, 2, 1)  # microbatches per stage, the most that divide the batch
MOST_IN_STAGES = 6


def usual_plans(plan: Plan, cluster: Cluster) -> tuple[StagesSpec, ...]:
    """Data parallelism, ZeRO, FSDP, tensor parallelism, and these in two axes and in stages.

    Arguments get the usual shardings; the solver splits the ops, as XLA's propagation would.
    Plans that the program does not allow (a batch that does not divide) are left out.

    Args:
        plan: of the same program; its account names the arguments.
    """
    account = plan.account
    if account is None or cluster.num_devices == 1:
        return ()
    return tuple(_specs(account, plan, cluster))


def _specs(account: Account, plan: Plan, cluster: Cluster) -> Iterator[StagesSpec]:
    count = cluster.num_devices
    own = account.arguments
    batch = _batch(own, plan)
    if _divides(batch, count):
        yield _one("data parallel", own, batch, {DATA: count}, whole=True)
        yield _one("ZeRO-1", own, batch, {DATA: count}, whole=True, split_optimizer=True)
        yield _one("FSDP", own, batch, {DATA: count})
    yield _one("tensor parallel", own, {}, {MODEL: count}, free=True, keep=batch)
    node = cluster.num_devices_per_node
    inner = node if node < count else count // 2
    if 1 < inner < count and _divides(batch, count // inner):
        mesh = {DATA: count // inner, MODEL: inner}
        yield _one("data x tensor parallel", own, batch, mesh, free=True)
    if plan.batch_arguments:
        yield from _in_stages(own, batch, count, node)


def _in_stages(
    own: Sequence[PlacedArgument], batch: dict[str, tuple[int, int]], count: int, node: int
) -> Iterator[StagesSpec]:
    """1F1B pipelines whose stages combine data and tensor parallelism. All degrees are powers of
    two, tensor parallelism stays inside a node, and shapes closest to a cube come first."""
    shapes = [
        (stages, data, count // (stages * data))
        for stages in _powers(count)
        for data in _powers(count // stages)
        if stages > 1 and count % (stages * data) == 0
    ]
    found = 0
    for stages, data, model in sorted(shapes, key=lambda each: (max(each), -each[2])):
        rounds = next((r for r in ROUNDS if _divides(batch, data * r * stages)), None)
        if rounds is None or model > node or found == MOST_IN_STAGES:
            continue
        found += 1
        mesh = {axis: size for axis, size in ((DATA, data), (MODEL, model)) if size > 1}
        parts = [f"{stages} stages", f"data {data}" * (data > 1), f"tensor {model}" * (model > 1)]
        layout = _one("", own, batch, {DATA: data}, free=True).shardings if data > 1 else {}
        yield StagesSpec(
            1,
            (StageSpec(),) * stages,
            rounds * stages,
            "1f1b",
            mesh=mesh or {DATA: 1},
            shardings=layout,
            name=" x ".join(filter(None, parts)),
        )


def _powers(most: int) -> list[int]:
    """1, 2, 4 ... up to `most`."""
    return [1 << n for n in range(most.bit_length()) if 1 << n <= most]


def _batch(arguments: Sequence[PlacedArgument], plan: Plan) -> dict[str, tuple[int, int]]:
    """Name of each argument that holds the batch -> its batch dim and that dim's size."""
    dims = dict(zip(plan.batch_arguments, plan.batch_dims, strict=True))
    if dims:
        return {
            arguments[a].name: (d, arguments[a].shape[d])
            for a, d in dims.items()
            if a < len(arguments)
        }
    inputs = [a for a in arguments if a.kind is ArgumentKind.INPUTS and a.shape]
    return {a.name: (0, a.shape[0]) for a in inputs}


def _divides(batch: dict[str, tuple[int, int]], count: int) -> bool:
    return bool(batch) and all(size % count == 0 for _, size in batch.values())


def _one(
    name: str,
    arguments: Sequence[PlacedArgument],
    batch: dict[str, tuple[int, int]],
    mesh: dict[str, int],
    *,
    whole: bool = False,
    split_optimizer: bool = False,
    free: bool = False,
    keep: dict[str, tuple[int, int]] | None = None,
) -> StagesSpec:
    """A plan of one stage.

    Args:
        whole: replicate parameters; otherwise split them along a dim that divides.
        free: let the solver choose the shardings of state.
        keep: arguments to replicate.
    """
    found: Patterns = {}
    for each in arguments:
        rank = len(each.shape)
        if each.name in batch:
            d = batch[each.name][0]
            found[each.name] = ",".join(DATA if n == d else "-" for n in range(rank))
        elif keep is not None and each.name in keep:
            found[each.name] = ",".join("-" * rank)
        elif each.kind is not ArgumentKind.INPUTS and not free and rank:
            split = not whole or (split_optimizer and each.kind is ArgumentKind.OPTIMIZER)
            found[each.name] = _words(each.shape, mesh[DATA] if split else 0)
    return StagesSpec(1, (StageSpec(),), mesh=mesh, shardings=found, name=name)


def _words(shape: Sequence[int], count: int) -> str:
    """Splits the longest dim that divides into `count` parts, and no other."""
    fits = [n for n, size in enumerate(shape) if count and size % count == 0]
    best = max(fits, key=lambda n: shape[n], default=-1)
    return ",".join(DATA if n == best else "-" for n in range(len(shape)))
