"""A training step of two stages, each on a 2x2 mesh, as the compiler would hand it to the runtime.

    y = tanh(x @ w0) @ w1;  loss = sum((y - t) ** 2) / batch;  w -= rate * gradient

Rows of the batch lie over axis x, the hidden dim over axis y. Gradients stay partial sums over x
until the update adds them up.
"""

import numpy as np

from shardc.plan.executable import ArgumentSpec, Executable, ResultSpec, StageProgram, ValueSpec
from shardc.plan.function_kind import FunctionKind
from shardc.plan.layout import Mesh, TensorSharding

BATCH, WIDTH, HIDDEN, OUT, M = 8, 6, 4, 2, 2
ROWS = BATCH // M
AXES = (("x", 2), ("y", 2))
OVER_X, OVER_Y = "dense<[[0,2],[1,3]]>", "dense<[[0,1],[2,3]]>"

SCHEDULES = {
    "gpipe": (
        ("0F0", "0F1", "0B0", "0B1", "0U"),
        ("1F0", "1F1", "1B0", "1B1", "1U"),
    ),
    "1f1b": (
        ("0P", "0F0", "0F1", "0B0", "0B1", "0U"),
        ("1P", "1F0", "1B0", "1F1", "1B1", "1U"),
    ),
}


def all_reduce(name: str, operand: str, groups: str, kind: str) -> str:
    return f"""
    %{name} = "stablehlo.all_reduce"(%{operand}) <{{
      replica_groups = {groups} : tensor<2x2xi64>,
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids}}> ({{
      ^bb0(%l: tensor<f32>, %r: tensor<f32>):
        %s = stablehlo.add %l, %r : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }}) : ({kind}) -> {kind}"""


def microbatch_rows(name: str, operand: str, width: int) -> str:
    """Reads the microbatch %index of [M, 2, width]."""
    kind = f"tensor<{M}x2x{width}xf32>"
    return f"""
    %{name}_zero = stablehlo.constant dense<0> : tensor<i32>
    %{name}_cut = stablehlo.dynamic_slice %{operand}, %index, %{name}_zero, %{name}_zero,
      sizes = [1, 2, {width}]
      : ({kind}, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x2x{width}xf32>
    %{name} = stablehlo.reshape %{name}_cut
      : (tensor<1x2x{width}xf32>) -> tensor<2x{width}xf32>"""


FORWARD_0 = f"""
module {{
  sdy.mesh @stage0 = <["x"=2, "y"=2]>
  func.func @stage0_forward(%w0: tensor<6x2xf32> {{shardc.value = "arg0"}}, %x: tensor<2x2x6xf32>,
      %index: tensor<i32>) -> (tensor<2x2xf32>) attributes {{shardc.stage = 0 : i64}} {{
    {microbatch_rows("row", "x", WIDTH)}
    %pre = stablehlo.dot_general %row, %w0, contracting_dims = [1] x [0]
      : (tensor<2x6xf32>, tensor<6x2xf32>) -> tensor<2x2xf32>
    %h = stablehlo.tanh %pre : tensor<2x2xf32>
    return %h : tensor<2x2xf32>
  }}
}}""".encode()

BACKWARD_0 = f"""
module {{
  func.func @stage0_backward(%x: tensor<2x2x6xf32>, %h: tensor<2x2xf32>, %dh: tensor<2x2xf32>,
      %index: tensor<i32>, %acc: tensor<6x2xf32>) -> tensor<6x2xf32> {{
    {microbatch_rows("row", "x", WIDTH)}
    %one = stablehlo.constant dense<1.0> : tensor<2x2xf32>
    %hh = stablehlo.multiply %h, %h : tensor<2x2xf32>
    %slope = stablehlo.subtract %one, %hh : tensor<2x2xf32>
    %dpre = stablehlo.multiply %dh, %slope : tensor<2x2xf32>
    %dw = stablehlo.dot_general %row, %dpre, contracting_dims = [0] x [0]
      : (tensor<2x6xf32>, tensor<2x2xf32>) -> tensor<6x2xf32>
    %sum = stablehlo.add %acc, %dw : tensor<6x2xf32>
    return %sum : tensor<6x2xf32>
  }}
}}""".encode()

FORWARD_1 = f"""
module {{
  func.func @stage1_forward(%w1: tensor<2x2xf32>, %h: tensor<2x2xf32>, %t: tensor<2x2x2xf32>,
      %index: tensor<i32>, %loss: tensor<f32>, %ys: tensor<2x2x2xf32>)
      -> (tensor<2x2xf32>, tensor<f32>, tensor<2x2x2xf32>) {{
    {microbatch_rows("row", "t", OUT)}
    %part = stablehlo.dot_general %h, %w1, contracting_dims = [1] x [0]
      : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    {all_reduce("y", "part", OVER_Y, "tensor<2x2xf32>")}
    %e = stablehlo.subtract %y, %row : tensor<2x2xf32>
    %ee = stablehlo.multiply %e, %e : tensor<2x2xf32>
    %none = stablehlo.constant dense<0.0> : tensor<f32>
    %own = stablehlo.reduce(%ee init: %none) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<2x2xf32>, tensor<f32>) -> tensor<f32>
    {all_reduce("rows", "own", OVER_X, "tensor<f32>")}
    %size = stablehlo.constant dense<{BATCH}.0> : tensor<f32>
    %mean = stablehlo.divide %rows, %size : tensor<f32>
    %sum = stablehlo.add %loss, %mean : tensor<f32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %y3 = stablehlo.reshape %y : (tensor<2x2xf32>) -> tensor<1x2x2xf32>
    %all = stablehlo.dynamic_update_slice %ys, %y3, %index, %zero, %zero
      : (tensor<2x2x2xf32>, tensor<1x2x2xf32>, tensor<i32>, tensor<i32>, tensor<i32>)
      -> tensor<2x2x2xf32>
    return %e, %sum, %all : tensor<2x2xf32>, tensor<f32>, tensor<2x2x2xf32>
  }}
}}""".encode()

BACKWARD_1 = f"""
module {{
  func.func @stage1_backward(%w1: tensor<2x2xf32>, %h: tensor<2x2xf32>, %e: tensor<2x2xf32>,
      %acc: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {{
    %scale = stablehlo.constant dense<{2 / BATCH}> : tensor<2x2xf32>
    %dy = stablehlo.multiply %e, %scale : tensor<2x2xf32>
    %dh = stablehlo.dot_general %dy, %w1, contracting_dims = [1] x [1]
      : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %dw = stablehlo.dot_general %h, %dy, contracting_dims = [0] x [0]
      : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %sum = stablehlo.add %acc, %dw : tensor<2x2xf32>
    return %dh, %sum : tensor<2x2xf32>, tensor<2x2xf32>
  }}
}}""".encode()


def update(stage: int, kind: str) -> bytes:
    return f"""
module {{
  func.func @stage{stage}_update(%w: {kind}, %acc: {kind}, %rate: tensor<f32>) -> {kind} {{
    {all_reduce("g", "acc", OVER_X, kind)}
    %r = stablehlo.broadcast_in_dim %rate, dims = [] : (tensor<f32>) -> {kind}
    %d = stablehlo.multiply %r, %g : {kind}
    %new = stablehlo.subtract %w, %d : {kind}
    return %new : {kind}
  }}
}}""".encode()


def spec(
    value: str, shape: tuple[int, ...], dims: str, *, unreduced: str = "", each: bool = False
) -> ValueSpec:
    """dims: one letter per dim, '.' is whole."""
    sharding = TensorSharding(
        tuple(() if axis == "." else (axis,) for axis in dims), tuple(unreduced)
    )
    dtype = "int32" if value == "index" else "float32"
    return ValueSpec(value, shape, dtype, sharding, each)


W0, W1 = spec("arg0", (WIDTH, HIDDEN), ".y"), spec("arg1", (HIDDEN, OUT), "y.")
X, T = spec("arg2", (M, ROWS, WIDTH), ".x."), spec("arg3", (M, ROWS, OUT), ".x.")
RATE, INDEX = spec("arg4", (), ""), spec("index", (), "", each=True)
H, DH = (spec(v, (ROWS, HIDDEN), "xy", each=True) for v in ("v0", "v2"))
E = spec("v1", (ROWS, OUT), "x.", each=True)
G0 = spec("acc0", (WIDTH, HIDDEN), ".y", unreduced="x")
G1 = spec("acc1", (HIDDEN, OUT), "y.", unreduced="x")
LOSS, YS = spec("acc2", (), ""), spec("acc3", (M, ROWS, OUT), ".x.")
NEW0, NEW1 = spec("v3", (WIDTH, HIDDEN), ".y"), spec("v4", (HIDDEN, OUT), "y.")


def toy_executable(schedule: str = "gpipe", *, donate: bool = True) -> Executable:
    """Arguments w0, w1, x, t, rate; results w0, w1, loss, y, rate."""
    updated = (0, 1) if donate else (1,)
    programs = (
        StageProgram("stage0_forward", 0, FunctionKind.FORWARD, 0, FORWARD_0, (W0, X, INDEX), (H,)),
        StageProgram(
            "stage0_backward",
            0,
            FunctionKind.BACKWARD,
            0,
            BACKWARD_0,
            (X, H, DH, INDEX, G0),
            (G0,),
            (1, 2, 4),
        ),
        StageProgram(
            "stage1_forward",
            1,
            FunctionKind.FORWARD,
            0,
            FORWARD_1,
            (W1, H, T, INDEX, LOSS, YS),
            (E, LOSS, YS),
            (4, 5),
        ),
        StageProgram(
            "stage1_backward",
            1,
            FunctionKind.BACKWARD,
            0,
            BACKWARD_1,
            (W1, H, E, G1),
            (DH, G1),
            (1, 2, 3),
        ),
        StageProgram(
            "stage0_update",
            0,
            FunctionKind.UPDATE,
            0,
            update(0, "tensor<6x2xf32>"),
            (W0, G0, RATE),
            (NEW0,),
            updated,
        ),
        StageProgram(
            "stage1_update",
            1,
            FunctionKind.UPDATE,
            0,
            update(1, "tensor<2x2xf32>"),
            (W1, G1, RATE),
            (NEW1,),
            updated,
        ),
    )
    arguments = (
        ArgumentSpec("w0", W0.shape, "float32", 0, donated=donate, aliased_result=0),
        ArgumentSpec("w1", W1.shape, "float32", 1, donated=donate, aliased_result=1),
        ArgumentSpec("x", (BATCH, WIDTH), "float32", 0, batch_dim=0),
        ArgumentSpec("t", (BATCH, OUT), "float32", 1, batch_dim=0),
        ArgumentSpec("rate", (), "float32", 0),
    )
    results = (
        ResultSpec("v3", W0.shape, "float32", 0),
        ResultSpec("v4", W1.shape, "float32", 1),
        ResultSpec("acc2", (), "float32", 1),
        ResultSpec("acc3", (BATCH, OUT), "float32", 1, batch_dim=0),
        ResultSpec("arg4", (), "float32", 0),
    )
    meshes = (Mesh(AXES, (0, 1, 2, 3)), Mesh(AXES, (4, 5, 6, 7)))
    return Executable(meshes, programs, arguments, results, M, SCHEDULES[schedule])


def toy_inputs() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = ((WIDTH, HIDDEN), (HIDDEN, OUT), (BATCH, WIDTH), (BATCH, OUT))
    return [random.normal(size=shape).astype(np.float32) for shape in shapes] + [
        np.float32(0.1) * np.ones((), np.float32)
    ]


def toy_numpy(w0, w1, x, t, rate):  # type: ignore[no-untyped-def]  # NumPy in and out
    """The same step in NumPy, in float64."""
    w0, w1, x, t, rate = (np.asarray(value, np.float64) for value in (w0, w1, x, t, rate))
    h = np.tanh(x @ w0)
    y = h @ w1
    dy = 2 * (y - t) / len(x)
    dpre = (dy @ w1.T) * (1 - h * h)
    return w0 - rate * x.T @ dpre, w1 - rate * h.T @ dy, ((y - t) ** 2).sum() / len(x), y, rate
