"""A whole module on one device, as under `jax.jit`: the reference for every plan."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.mlir import ir

from shardc.backend.mergeable_module import mergeable_module
from shardc.backend.primitive import ProgramModule, run_program
from shardc.ir.copy import bytecode
from shardc.ir.tensor_types import dtype_name
from shardc.ir.walk import body, main_function, symbol


class SingleDeviceStep:
    """A compiled single-device program; takes and returns host arrays."""

    def __init__(self, compiled: jax.stages.Compiled, place: Any, num_arguments: int) -> None:
        self._compiled, self._place, self._num_arguments = compiled, place, num_arguments

    def __call__(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        arrays = jax.device_put(list(values), [self._place] * self._num_arguments)
        return [np.asarray(result) for result in self._compiled(*arrays)]

    @property
    def num_bytes(self) -> int:
        """Peak bytes on the device according to XLA: arguments, results and temporaries."""
        memory: Any = self._compiled.memory_analysis()
        return int(
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            - memory.alias_size_in_bytes
            + memory.temp_size_in_bytes
        )


def single_device_step(module: ir.Module, device: jax.Device) -> SingleDeviceStep:
    """Compiles the main function of `module` for `device`.

    The module need not be prepared: XLA inlines its calls. A module with 64-bit values needs JAX's
    x64 mode.
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
    compiled = jax.jit(step).lower(*examples).compile()

    return SingleDeviceStep(compiled, place, len(examples))


def _aval(type_: ir.Type) -> ShapedArray:
    tensor = ir.RankedTensorType(type_)
    return ShapedArray(tuple(tensor.shape), np.dtype(dtype_name(tensor.element_type)))
