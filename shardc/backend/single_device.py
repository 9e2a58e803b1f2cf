"""A whole module on one device, as `jax.jit` would run it: what every plan is measured against."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.mlir import ir

from shardc.backend.mergeable_module import mergeable_module
from shardc.backend.primitive import ProgramModule, run_program
from shardc.ir.copy import bytecode
from shardc.ir.tensor_types import dtype_name
from shardc.ir.walk import body, main_function, symbol

Step = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


def single_device_step(module: ir.Module, device: jax.Device) -> Step:
    """Compiles the main function of `module` for `device`: arrays on the host in and out.

    The module need not be prepared: XLA itself inlines its calls. Needs JAX's x64 mode if there
    are 64-bit values in it.
    """
    main = main_function(module.operation)
    code = mergeable_module(bytecode(module.operation), symbol(main), local=True)
    program = ProgramModule(code)
    function_type = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    results = tuple(_aval(type_) for type_ in function_type.results)
    inputs = [_aval(value.type) for value in body(main).arguments]

    def step(*values: jax.Array) -> list[jax.Array]:
        return run_program(values, program, results)

    place = jax.sharding.SingleDeviceSharding(device)
    examples = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place) for a in inputs]
    compiled = jax.jit(step, keep_unused=True).lower(*examples).compile()

    def run(values: Sequence[np.ndarray]) -> list[np.ndarray]:
        arrays = jax.device_put(list(values), [place] * len(examples))
        return [np.asarray(result) for result in compiled(*arrays)]

    return run


def _aval(type_: ir.Type) -> ShapedArray:
    tensor = ir.RankedTensorType(type_)
    return ShapedArray(tuple(tensor.shape), np.dtype(dtype_name(tensor.element_type)))
