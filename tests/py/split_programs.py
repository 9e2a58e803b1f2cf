"""Programs as they are split into microbatches, and what a split one computes."""

import warnings

import jax
import numpy as np
from jax.extend.mlir import ir

from shardc.analysis.program.flops import heavy_flops
from shardc.check.forms import split_form
from shardc.check.forms.engines import Engine, xla
from shardc.ir.attributes import BATCH_DIM, PHASE, arg_attrs, get_str
from shardc.ir.context import parse
from shardc.ir.pass_manager import run_passes
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import body, main_function, ops
from shardc.passes.canonicalize import Canonicalize
from shardc.passes.cse import Cse
from shardc.passes.inline_calls import InlineCalls
from shardc.passes.legalize_chlo import LegalizeChlo
from shardc.passes.strip_shardings import StripShardings
from tests.py.programs import Program

Arrays = list[np.ndarray]


def run_module(module: ir.Module, args: Arrays) -> Arrays:
    """Runs the main function of a module on one device, by XLA."""
    return xla(module.operation, main_function(module.operation), 1)([args])[0]


def normalized(program: Program) -> tuple[ir.Module, Arrays]:
    """A program as the split gets it, with its flat arguments (keys as their bits)."""
    jitted = jax.jit(program.step, donate_argnums=program.donate_argnums, keep_unused=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        module = parse(jitted.lower(*program.args).as_text(debug_info=True))
    run_passes(module, [InlineCalls(), StripShardings(), LegalizeChlo(), Canonicalize(), Cse()])
    flat = [
        jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in jax.tree.leaves(program.args)
    ]
    return module, [np.asarray(x) for x in flat]


def run_split(module: ir.Module, args: Arrays, engine: Engine = xla) -> Arrays:
    """Runs a split module on the arguments of the whole one, phase by phase."""
    main = main_function(module.operation)
    cut = []
    for arg, attrs, value in zip(body(main).arguments, arg_attrs(main), args, strict=True):
        cut.append(np.reshape(value, shape_of(arg)))
        assert (np.shape(value) != cut[-1].shape) == (BATCH_DIM in attrs)
    return split_form.run_split(module.operation, cut, engine)


def flops_of(module: ir.Module, phase: str | None = None) -> int:
    """FLOPs of matrix products and convolutions, of one phase or of all."""
    return sum(
        heavy_flops(op)
        for op in ops(main_function(module.operation))
        if phase is None or get_str(op, PHASE) == phase
    )


def copy_of(module: ir.Module) -> ir.Module:
    """The same module in a context of its own."""
    return parse(module.operation.get_asm(enable_debug_info=True))
