"""shardc: a plain JAX function and a cluster in, a parallel execution out."""

from typing import TYPE_CHECKING, Any

from shardc.runtime.processes import roll_call
from shardc.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from shardc.api.export import export as export
    from shardc.api.jit import gather as gather
    from shardc.api.jit import jit as jit
    from shardc.api.processes.feeding import batch_sharding as batch_sharding
    from shardc.api.state.reallocate import reallocate as reallocate
    from shardc.api.state.view import view as view
    from shardc.api.telling.tracing import rank_times as rank_times
    from shardc.api.telling.tracing import trace as trace
    from shardc.cluster import Cluster as Cluster
    from shardc.errors import RequestWarning as RequestWarning
    from shardc.errors import ShardcError as ShardcError
    from shardc.plan.decisions import Plan as Plan
    from shardc.plan.stages_spec import StagesSpec as StagesSpec
    from shardc.runtime.processes.joining import initialize as initialize
    from shardc.runtime.processes.orbax_arrays import use_orbax as use_orbax
    from shardc.schedule.registry import register_schedule as register_schedule

_HOMES = {
    "batch_sharding": "shardc.api.processes.feeding",
    "export": "shardc.api.export",
    "jit": "shardc.api.jit",
    "gather": "shardc.api.jit",
    "initialize": "shardc.runtime.processes.joining",
    "reallocate": "shardc.api.state.reallocate",
    "rank_times": "shardc.api.telling.tracing",
    "trace": "shardc.api.telling.tracing",
    "view": "shardc.api.state.view",
    "Cluster": "shardc.cluster",
    "Plan": "shardc.plan.decisions",
    "StagesSpec": "shardc.plan.stages_spec",
    "register_schedule": "shardc.schedule.registry",
    "use_orbax": "shardc.runtime.processes.orbax_arrays",
    "RequestWarning": "shardc.errors",
    "ShardcError": "shardc.errors",
}


def __getattr__(name: str) -> Any:
    """Loads a public name on first use, so that `import shardc` stays fast (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shardc' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


roll_call.begin()
