"""Shape, dtype and bytes of MLIR values."""

import math
import re

from jax.extend.mlir import ir

from shardc.cluster.devices import bits_of

_FLOATS: dict[type[ir.Type], str] = {  # the frequent ones, to avoid printing the type
    ir.F16Type: "float16",
    ir.BF16Type: "bfloat16",
    ir.F32Type: "float32",
    ir.F64Type: "float64",
}
_COMPLEX = {"complex<f32>": "complex64", "complex<f64>": "complex128"}
_INTEGER = re.compile(r"^(u?)i(\d+)$")
_SUMMED_WIDER = ("float16", "bfloat16", "float8", "float6", "float4")
_NARROW = re.compile(r"^(f16|bf16|f[468]E\w+)$")
_FLOAT8 = re.compile(r"^f(\d+)(E\w+)$")


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """Sizes of the dims of a ranked tensor; () for a token or a tuple."""
    type_ = value.type  # each access makes an object
    return tuple(type_.shape) if isinstance(type_, ir.RankedTensorType) else ()


def dtype_of(value: ir.Value) -> str:
    """NumPy/ml_dtypes name of a tensor's elements, such as "bfloat16"; "" for other types."""
    type_ = value.type
    return dtype_name(type_.element_type) if isinstance(type_, ir.RankedTensorType) else ""


def dtype_name(element_type: ir.Type) -> str:
    """NumPy/ml_dtypes name of an element type; its MLIR text if they have none."""
    known = _FLOATS.get(type(element_type))
    if known is not None:
        return known
    text = str(element_type)
    if text == "i1":
        return "bool"
    if text in _COMPLEX:
        return _COMPLEX[text]
    if match := _INTEGER.match(text):
        return f"{'u' * bool(match[1])}int{match[2]}"
    if match := _FLOAT8.match(text):
        return f"float{match[1]}_{match[2].lower()}"
    return text


def is_float(value: ir.Value) -> bool:
    """Whether the elements are floats or complex numbers, which are rounded."""
    type_ = value.type
    if not isinstance(type_, ir.RankedTensorType):
        return False
    return isinstance(type_.element_type, (ir.FloatType, ir.ComplexType))


def itemsize(dtype: str) -> int:
    """Bytes of one element; sub-byte and unknown types count as one byte."""
    return max(1, bits_of(dtype) // 8)


def sum_type(whole: ir.Type) -> ir.Type:
    """The type of partial sums of a tensor type until they are reduced: f32 for narrow floats.

    If each were rounded, the sum of partial sums that nearly cancel would be mostly rounding error.
    """
    if not isinstance(whole, ir.RankedTensorType):
        return whole
    if not _NARROW.match(str(whole.element_type)):
        return whole
    return ir.RankedTensorType.get(whole.shape, ir.F32Type.get())


def sum_dtype(dtype: str) -> str:
    """Element type name of a tensor while it is a partial sum: see `sum_type`."""
    return "float32" if dtype.startswith(_SUMMED_WIDER) else dtype


def sum_itemsize(value: ir.Value) -> int:
    """Bytes of one element of a tensor while it is a partial sum."""
    return itemsize(sum_dtype(dtype_of(value)))


def num_elements(value: ir.Value) -> int:
    """Number of elements of a tensor; 0 for other types."""
    type_ = value.type
    return math.prod(type_.shape) if isinstance(type_, ir.RankedTensorType) else 0


def num_bytes(value: ir.Value) -> int:
    """Bytes of a whole tensor; 0 for other types."""
    type_ = value.type
    if not isinstance(type_, ir.RankedTensorType):
        return 0
    return math.prod(type_.shape) * itemsize(dtype_name(type_.element_type))
