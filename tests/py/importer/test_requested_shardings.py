"""Shardings from patterns and from where arrays lie, as they end up in the module."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from shardc.errors import InputError
from shardc.importer.from_jax import import_function
from shardc.importer.program import Imported
from shardc.importer.requested_shardings import (
    constrain_by_patterns,
    constrain_to_placements,
    dotted,
    matches,
)
from shardc.ir.attributes import SHARDING, arg_attrs
from shardc.ir.user_shardings import print_user_sharding, read_user_sharding
from shardc.ir.walk import main_function

AXES = (("data", 2), ("model", 4))
PARAMS = {"layers": [{"kernel": np.ones((8, 4), np.float32), "bias": np.ones(4, np.float32)}]}
X = np.ones((8, 8), np.float32)


def imported() -> Imported:
    def step(params, x):
        return x @ params["layers"][0]["kernel"] + params["layers"][0]["bias"]

    return import_function(step, (PARAMS, X))


def asked(program: Imported) -> dict[str, str]:
    """Argument -> what is asked for, where anything is."""
    with program.module.context:
        attrs = arg_attrs(main_function(program.module.operation))
        return {
            dotted(argument.name): print_user_sharding(read_user_sharding(each[SHARDING]))
            for argument, each in zip(program.arguments, attrs, strict=True)
            if SHARDING in each
        }


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("params.*.kernel", True),
        ("*.kernel", True),
        ("kernel", True),
        ("layers.0.kernel", True),
        ("state['params']['layers'][0].kernel", True),
        ("state['params']['layers'][0]*", True),
        ("params['layers'][*].kernel", True),
        ("params.layers.[0-3].kernel", True),
        ("state['params']['layers'][1]*", False),
        ("params", False),
        ("ernel", False),
        ("*.bias", False),
    ],
)
def test_a_pattern_fits_a_name_or_its_end(pattern, fits):
    assert matches(pattern, "state['params']['layers'][0].kernel") is fits


def test_patterns_are_written_on_the_arguments_that_they_fit():
    program = imported()
    specs = {"params.*.kernel": P(None, ("data", "model")), "x": P(P.UNCONSTRAINED)}
    constrain_by_patterns(program, specs, AXES)
    assert asked(program) == {"params.layers.0.kernel": "[-, data*model]", "x": "[?, -]"}


def test_the_mesh_may_come_with_a_sharding_or_from_the_context():
    mesh = jax.make_mesh((2, 4), ("data", "model"))
    for context, spec in ((False, NamedSharding(mesh, P("data"))), (True, P("data"))):
        program = imported()
        if context:
            with jax.set_mesh(mesh):
                constrain_by_patterns(program, {"bias": spec}, ())
        else:
            constrain_by_patterns(program, {"bias": spec}, ())
        assert asked(program) == {"params.layers.0.bias": "[data]"}


@pytest.mark.parametrize(
    ("shardings", "code", "words"),
    [
        ({"params.*.scale": P()}, "SHARDC-180", "fits no argument"),
        ({"*.bias": P("expert")}, "SHARDC-110", "axis 'expert'"),
        ({"*.bias": P(None, "data")}, "SHARDC-203", "has 1 dims"),
        ({"*.bias": P("data", "data")}, "SHARDC-203", "names the axis 'data' twice"),
        ({"*.bias": P("data"), "layers.*": P("model")}, "SHARDC-204", r"\[data\], and .*\[model"),
    ],
)
def test_patterns_that_cannot_be_meant_are_refused(shardings, code, words):
    with pytest.raises(InputError, match=words) as caught:
        constrain_by_patterns(imported(), shardings, AXES)
    assert caught.value.code == code


def test_a_pattern_must_agree_with_in_shardings():
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    program = import_function(jnp.sin, (X,), in_shardings=NamedSharding(mesh, P("data")))
    name = program.arguments[0].name
    constrain_by_patterns(program, {name: P("data")}, AXES)
    with pytest.raises(InputError, match="in_shardings wants") as caught:
        constrain_by_patterns(program, {name: P("model")}, AXES)
    assert caught.value.code == "SHARDC-204"


def placed(*specs: P | None, shape: tuple[int, int] = (2, 4)) -> list[jax.Array]:
    """The leaves of (PARAMS, X) on a mesh; None: on one device."""
    mesh = jax.make_mesh(shape, ("data", "model"))
    return [
        jnp.asarray(leaf) if spec is None else jax.device_put(leaf, NamedSharding(mesh, spec))
        for leaf, spec in zip(jax.tree.leaves((PARAMS, X)), specs, strict=True)
    ]


def test_arrays_in_parts_ask_for_their_sharding_and_whole_ones_do_not():
    program = imported()
    constrain_to_placements(program, placed(P(), P("model"), None))
    assert asked(program) == {"params.layers.0.kernel": "[model, -]"}


def test_arrays_on_several_meshes_ask_for_nothing():
    leaves = [*placed(P("data"), None, None)[:2], placed(None, None, P("data"), shape=(4, 2))[2]]
    program = imported()
    constrain_to_placements(program, leaves)
    assert asked(program) == {}


def test_what_is_asked_for_otherwise_comes_first():
    leaves = placed(None, P("model"), P("data"))
    program = imported()
    constrain_to_placements(program, leaves, mesh=(8,))
    assert asked(program) == {}
    constrain_by_patterns(program, {"kernel": P(None, "model")}, AXES)
    constrain_to_placements(program, leaves)
    assert asked(program) == {"params.layers.0.kernel": "[-, model]", "x": "[data, -]"}
