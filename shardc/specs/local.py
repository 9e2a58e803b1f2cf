"""The local form: the program of one device of a stage."""

from jax.extend.mlir import ir

from shardc.ir.attributes import GLOBAL_TYPE, IN_SHARDINGS, SHARDING
from shardc.ir.shardings import from_attr, mesh_name, meshes
from shardc.ir.tensor_types import shape_of
from shardc.ir.walk import functions, walk
from shardc.specs.form import edges, expect

FORM = "local"


def verify(module: ir.Operation) -> None:
    """Checks a module after `shardc-localize`.

    No op belongs to Shardy or has a sharding; each argument and result has the local type of its
    global type and sharding (functions may pass partial sums to each other).

    Raises:
        FormError: SHARDC-999.
    """
    known = meshes(module)
    for function in functions(module):
        for named, value in edges(function):
            if not isinstance(value.type, ir.RankedTensorType):
                continue
            whole = GLOBAL_TYPE in named and SHARDING in named
            expect(whole, FORM, "an argument or result has no global type", function)
            sharding, name = from_attr(named[SHARDING]), mesh_name(named[SHARDING])
            expect(name in known, FORM, f"there is no mesh @{name}", function)
            type_ = ir.RankedTensorType(ir.TypeAttr(named[GLOBAL_TYPE]).value)
            counts = [known[name].num_shards(axes) for axes in sharding.dims]
            part = tuple(size // n for size, n in zip(type_.shape, counts, strict=True))
            expect(shape_of(value) == part, FORM, f"{value.type} is no part of {type_}", function)
        for op in walk(function):
            expect(not op.name.startswith("sdy."), FORM, "an op of Shardy is left", op)
            for attribute in (SHARDING, IN_SHARDINGS):
                expect(attribute not in op.attributes, FORM, f"{attribute} is left", op)
