"""The work of ops on one device and its links, in numbers that a cost model prices."""

import msgspec


class Work(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One run of an op, or of the kernel that XLA fuses it into, on one device.

    Attributes:
        dtype: NumPy/ml_dtypes name of the operands.
        flops: a multiply-add is 2.
        num_bytes: read from and written to the device's own memory.
        launches: kernels launched; less than 1 if the op shares one with others.
        product: (batch, rows, columns, depth) of a matrix product; () for everything else.
    """

    dtype: str
    flops: float
    num_bytes: float
    launches: float = 0.0
    product: tuple[int, ...] = ()
