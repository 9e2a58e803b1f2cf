"""What a sharding of the user's allows."""

import pytest
from jax.extend.mlir import ir

from shardc.errors import PlanError
from shardc.ir.context import parse
from shardc.ir.user_shardings import (
    UserSharding,
    print_user_sharding,
    read_user_sharding,
    uneven_dim,
    user_sharding_attr,
)
from shardc.plan.layout import Mesh, TensorSharding

MESH = Mesh((("x", 2), ("y", 4)), tuple(range(8)))
ASKED = UserSharding((("x",), ()), (False, True))  # rows over x, columns as you like


@pytest.mark.parametrize(
    ("dims", "allowed"),
    [
        ((("x",), ()), True),
        ((("x",), ("y",)), True),
        ((("x", "y"), ()), False),
        (((), ("y",)), False),
        ((("y",), ()), False),
    ],
)
def test_closed_dims_are_as_asked_and_open_ones_may_be_split(dims, allowed):
    assert ASKED.allows(TensorSharding(dims)) is allowed


def test_a_partial_sum_is_never_what_was_asked_for():
    assert not ASKED.allows(TensorSharding((("x",), ()), ("y",)))


def test_an_open_dim_keeps_its_axes_first():
    asked = UserSharding((("x",),), (True,))
    assert asked.allows(TensorSharding((("x", "y"),)))
    assert not asked.allows(TensorSharding((("y", "x"),)))


def test_a_replicated_axis_splits_nothing():
    asked = UserSharding(((), ()), (True, True), ("y",))
    assert asked.allows(TensorSharding((("x",), ())))
    assert not asked.allows(TensorSharding(((), ("y",))))


def test_an_order_of_axes_that_the_planner_does_not_try_is_still_an_option():
    minor_first = UserSharding((("y", "x"),), (False,))
    options = (TensorSharding(((),)), TensorSharding((("x", "y"),)))
    assert minor_first.only(options) == (TensorSharding((("y", "x"),)),)


def test_the_dim_of_the_microbatches_is_whole():
    assert ASKED.with_dim(0) == UserSharding(((), ("x",), ()), (False, False, True))


def test_uneven_dims_are_found():
    assert uneven_dim(ASKED, MESH, (4, 3)) is None
    assert uneven_dim(ASKED, MESH, (3, 4)) == 0
    assert uneven_dim(UserSharding(((), ("x", "y")), (False, False)), MESH, (4, 12)) == 1


def test_attributes_keep_all_of_it():
    with parse("module {}").context:
        for asked in (ASKED, UserSharding(((), ()), (True, False), ("y",)), UserSharding((), ())):
            assert read_user_sharding(user_sharding_attr(asked)) == asked


def test_partial_sums_cannot_be_asked_for():
    with parse("module {}").context:
        attr = ir.Attribute.parse('#sdy.sharding<@user, [{}], unreduced={"x"}>')
        with pytest.raises(PlanError, match="partial sums") as caught:
            read_user_sharding(attr, "step.py:3")
    assert caught.value.code == "SHARDC-202"
    assert caught.value.where == "step.py:3"


def test_people_can_read_it():
    assert (
        print_user_sharding(UserSharding((("x", "y"), (), ()), (False, False, True)))
        == "[x*y, -, ?]"
    )
