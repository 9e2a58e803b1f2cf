"""The plan cache on disk: the same program on the same cluster is planned once.

The directory is `$SHARDC_CACHE_DIR`; otherwise `shardc` under JAX's persistent compilation cache,
if that is enabled; otherwise `~/.cache/shardc` (under `$XDG_CACHE_HOME`, if set). A file is
named by the digest of everything that its plan depends on, so entries never become stale; they
may be deleted at any time. No other user can access the directory.
"""

import functools
import hashlib
import os
import warnings
from pathlib import Path

import jax
import msgspec

from shardc.cluster import Cluster
from shardc.errors import PlanError, RequestWarning
from shardc.files import private_folder, write_whole
from shardc.options import PlanOptions
from shardc.plan.decisions import Plan
from shardc.schedule.registry import identity
from shardc.version import VERSION


def directory() -> Path:
    """The cache directory; see above."""
    if own := os.environ.get("SHARDC_CACHE_DIR"):
        return Path(own)
    compiled = jax.config.jax_compilation_cache_dir
    if compiled and jax.config.jax_enable_compilation_cache and "://" not in compiled:
        return Path(compiled) / "shardc"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "shardc"


@functools.cache
def _code_digest() -> bytes:
    """Digest of shardc's own source: a plan of one version may not fit the passes of another."""
    digest = hashlib.sha256(f"{VERSION} {jax.__version__}".encode())
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def fingerprint(program: str, cluster: Cluster, options: PlanOptions) -> str:
    """Digest of everything that a plan depends on.

    Args:
        program: digest of the prepared module.
    """
    digest = hashlib.sha256(_code_digest())
    options = msgspec.structs.replace(options, early_updates=False)  # of the run, not of the plan
    parts = msgspec.json.encode(cluster), msgspec.json.encode(options)
    for part in (program.encode(), *parts, identity(options.schedule).encode()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def load(digest: str) -> Plan | None:
    """The plan cached under `digest`; None if there is none.

    Warns about a damaged file and returns None: planning again replaces it.
    """
    path = directory() / f"{digest}.json"
    if not path.exists():
        return None
    try:
        plan = Plan.load(path)
        if plan.fingerprint != digest:
            raise PlanError("it was made for something else")
    except PlanError as error:
        warnings.warn(
            f"the cached plan {path} is damaged and will be replaced: {error.message}",
            RequestWarning,
            stacklevel=2,
        )
        return None
    return msgspec.structs.replace(plan, from_cache=True)


def store(plan: Plan) -> None:
    """Stores `plan` under its fingerprint; warns if the directory cannot be written."""
    folder = directory()
    try:
        private_folder(folder)
        write_whole(folder / f"{plan.fingerprint}.json", msgspec.json.encode(plan))
    except OSError as error:
        warnings.warn(f"the plan is not cached: {error}", stacklevel=2)
