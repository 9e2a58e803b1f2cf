"""What ops ask of one device and of its links, in numbers: what a cost model prices."""

import msgspec


class Work(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One run of an op, or of what XLA fuses into one kernel with it, on one device.

    Attributes:
        dtype: NumPy/ml_dtypes name of the operands.
        flops: a multiply-add is 2.
        num_bytes: read from and written to the device's own memory.
        launches: kernels that start; less than 1 where the op shares one with others.
        product: (batch, rows, columns, depth) of a matrix product; () for everything else.
    """

    dtype: str
    flops: float
    num_bytes: float
    launches: float = 0.0
    product: tuple[int, ...] = ()
