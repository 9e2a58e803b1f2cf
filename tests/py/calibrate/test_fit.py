"""Constants are found again in samples that were made of them, disturbed or not."""

import math

import numpy as np
import pytest

from shardc.calibrate.fit import COLLECTIVES, fit_device, fit_links
from shardc.calibrate.robust import robust_fit
from shardc.calibrate.timer import Sample
from shardc.cluster import Device, Timing
from shardc.cost.links import Link
from shardc.cost.roofline import op_time_s
from shardc.plan.priced_work import Work

TRUE = Device(
    "d",
    1 << 30,
    {"default": 2e11, "float32": 4e11, "bfloat16": 9e11},
    5e10,
    Timing(half_side=40.0, half_depth=20.0, launch_s=3e-6),
)


def products(noise: float = 0.0) -> list[Sample]:
    jitter = np.random.default_rng(0)
    found = []
    for dtype in ("float32", "bfloat16"):
        itemsize = 4 if dtype == "float32" else 2
        for n in (128, 256, 512, 1024, 2048):
            for rows, columns, depth in ((n, n, n), (64, n, n), (n, n, 64), (n, 64, n)):
                moved = itemsize * (rows * depth + depth * columns + rows * columns)
                flops = 2.0 * rows * columns * depth
                work = Work(dtype, flops, moved, 1.0, (1, rows, columns, depth))
                seconds = op_time_s(work, TRUE) * math.exp(noise * jitter.standard_normal())
                found.append(Sample("product", dtype, (rows, columns, depth), seconds, 0.0))
    for num_bytes in (1 << n for n in range(18, 27, 2)):
        seconds = op_time_s(Work("float32", 0.0, num_bytes, 1.0), TRUE)
        found.append(Sample("memory", "float32", (num_bytes,), seconds, 0.0))
    call_s = 5e-5
    for kernels in (8, 72):
        seconds = call_s + kernels * TRUE.timing.launch_s
        found.append(Sample("launch", "float32", (kernels,), seconds, 0.0))
    return found


def near(found: Device, within: float) -> None:
    assert found.flops_per_s["float32"] == pytest.approx(4e11, rel=within)
    assert found.flops_per_s["bfloat16"] == pytest.approx(9e11, rel=within)
    assert found.memory_bandwidth_bytes_per_s == pytest.approx(5e10, rel=within)
    assert found.timing.launch_s == pytest.approx(3e-6, rel=within)


def test_a_device_is_found_again():
    fitted = fit_device(products(), "d", 1 << 30)
    near(fitted.device, 0.02)
    assert fitted.device.timing.half_side == pytest.approx(40, rel=0.05)
    assert fitted.device.timing.half_depth == pytest.approx(20, rel=0.05)
    assert max(abs(each.relative) for each in fitted.residuals) < 0.01


def test_a_sample_that_was_disturbed_moves_little():
    samples = products(noise=0.03)
    bad = samples[7]
    samples[7] = Sample(bad.kind, bad.dtype, bad.sizes, 20 * bad.seconds, 1.0)
    near(fit_device(samples, "d", 1 << 30).device, 0.1)


def test_links_are_found_again():
    link = {n: 1e9 * (n - 1) / (n - 1 + 0.5) for n in (2, 4, 8)}
    samples = [
        Sample(
            kind, "float32", (n, b), price(n, Link(link[n], 4e-6, link[n], 2e-5), b), 0.0, "node"
        )
        for kind, price in COLLECTIVES.items()
        for n in link
        for b in (1 << 10, 1 << 14, 1 << 18, 1 << 22)
    ]
    samples += [
        Sample("transfer", "float32", (b,), b / 4e8, 0.0, "node") for b in (1 << 18, 1 << 22)
    ]
    sends = fit_links(samples, "node")
    assert sends is not None
    assert sends.latency_s == pytest.approx(4e-6, rel=0.05)
    assert sends.launch_s == pytest.approx(2e-5, rel=0.05)
    shares = {n: (n - 1) / (n - 1 + 0.5) for n in link}
    assert {n: pytest.approx(share, rel=0.02) for n, share in shares.items()} == {
        n: sends.groups[n] * sends.bandwidth_bytes_per_s / 1e9 for n in link
    }
    sent = sends.transfer_efficiency * sends.bandwidth_bytes_per_s
    assert sent == pytest.approx(4e8, rel=0.02)


def test_one_device_has_no_links():
    assert fit_links(products(), "node") is None


def test_what_no_sample_speaks_of_has_no_error_bar():
    fitted = robust_fit(lambda v: np.log(v[:1] / np.array([2.0])), [1.0, 1.0], [0.1] * 2, [9.0] * 2)
    assert fitted.values[0] == pytest.approx(2.0, rel=1e-4)
    assert math.isinf(fitted.errors[1])
