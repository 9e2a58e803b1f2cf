"""Digests of modules: the same for the same program, wherever it was written."""

import jax
import numpy as np
from jax.extend.mlir import ir

from shardc.ir.context import parse
from shardc.ir.copy import copy_module, module_digest


def module(table: np.ndarray, *, locations: bool = False) -> ir.Module:
    lowered = jax.jit(lambda x: x + table).lower(table)
    return parse(lowered.as_text(debug_info=locations))


TABLE = np.random.default_rng(0).standard_normal((200, 200))  # too large to be printed


def test_digest_knows_large_constants_and_no_locations() -> None:
    digest = module_digest(module(TABLE))
    assert module_digest(module(TABLE, locations=True)) == digest
    changed = TABLE.copy()
    changed[100, 100] += 1.0
    assert module_digest(module(changed)) != digest


def test_digest_leaves_the_module_as_it_is() -> None:
    original = module(TABLE, locations=True)
    before = str(original.operation.get_asm(enable_debug_info=True))
    assert module_digest(original) == module_digest(copy_module(original))
    assert str(original.operation.get_asm(enable_debug_info=True)) == before
