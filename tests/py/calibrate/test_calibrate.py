"""The whole of `shardc calibrate`: the file it writes, a busy machine, a device that goes away."""

import functools
import json

import jax
import pytest

from shardc.calibrate import measured_cluster
from shardc.calibrate.compute_probes import of_devices
from shardc.calibrate.measured_cluster import calibrate, fastest
from shardc.calibrate.timer import Sample, Timer
from shardc.cli.calibrate import command
from shardc.cluster import Cluster
from shardc.errors import ClusterError


@pytest.fixture
def no_time(monkeypatch):
    """Only what comes first is measured."""
    jax.devices()  # or the command would start two for all tests of this process
    monkeypatch.setattr(measured_cluster, "LIMIT_S", {False: 0.5, True: 0.5})
    monkeypatch.setattr(measured_cluster, "BUSY", 1e9)
    monkeypatch.setattr(measured_cluster, "LOAD", 1e9)


@pytest.mark.slow
def test_the_command_writes_a_cluster_that_loads(no_time, tmp_path, capsys):
    path = tmp_path / "here.json"
    command.main(
        ["-o", str(path), "--devices", "2", "--quick", "--format", "json"], standalone_mode=False
    )
    said = json.loads(capsys.readouterr().out)
    cluster = Cluster.load(path)
    assert cluster.num_devices == 2
    assert f"jax {jax.__version__}" in cluster.device.source["flops_per_s"]
    assert {each["kind"] for each in said["samples"]} >= {"product", "memory"}
    assert said["busy"] >= 0 and said["load_per_core"] >= 0


def rounds_of(monkeypatch, factors, spread: float, load: float) -> None:
    """Rounds whose samples take 1, 2, ... times as long, and the load of the machine."""
    rounds = iter(factors)

    def measured(devices, levels, quick, tell, gather):
        factor = next(rounds)
        timer = Timer(1.0)
        timer.samples = [
            Sample("product", "float32", (n, n, n), factor * 2e-11 * n**3, spread)
            for n in (64, 256, 1024)
        ]
        timer.samples.append(Sample("memory", "float32", (1 << 20,), factor * 1e-4, spread))
        return timer

    monkeypatch.setattr(measured_cluster, "_measured", measured)
    monkeypatch.setattr(measured_cluster.os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(measured_cluster.os, "cpu_count", lambda: 1)


def test_a_busy_machine_is_measured_twice_and_says_so(monkeypatch):
    seen: list[str] = []
    rounds_of(monkeypatch, [3.0, 1.0], spread=0.2, load=0.0)
    made = calibrate(jax.devices()[:1], say=seen.append)
    assert (made.rounds, made.apart) == (2, pytest.approx(2.0))
    assert any("repeats differ by 20%" in line for line in seen)
    assert made.busy == pytest.approx(0.2)
    assert min(made.errors.values()) >= 1.2 * 3.0 - 1  # wider by the repeats and the rounds
    assert made.cluster.device.flops_per_s["float32"] == pytest.approx(1e11, rel=0.2)
    assert "two rounds by 200%" in made.cluster.device.source["flops_per_s"]


def test_load_alone_repeats_and_widens_though_all_samples_agree(monkeypatch):
    seen: list[str] = []
    rounds_of(monkeypatch, [1.0, 1.0], spread=0.0, load=1.5)
    made = calibrate(jax.devices()[:1], say=seen.append)
    assert (made.rounds, made.busy, made.apart, made.load) == (2, 0.0, 0.0, 1.5)
    assert any("load 1.5 per core" in line for line in seen)
    assert min(made.errors.values()) >= 1.5
    assert "load 1.5 per core" in made.cluster.device.source["flops_per_s"]


def test_a_quiet_machine_is_measured_once(monkeypatch):
    rounds_of(monkeypatch, [1.0], spread=0.01, load=0.1)
    made = calibrate(jax.devices()[:1])
    assert (made.rounds, made.apart) == (1, 0.0)
    assert min(made.errors.values()) < 0.2


def test_rounds_are_compared_where_they_measured_the_same():
    one = [Sample("memory", "float32", (size,), 1.0, 0.0) for size in (8, 16, 32)]
    other = [Sample("memory", "float32", (size,), t, 0.0) for size, t in ((8, 2.0), (16, 0.8))]
    assert measured_cluster.difference(one, other) == pytest.approx((1.0 + 0.25) / 2)
    assert measured_cluster.difference(one, []) == 0.0


def test_of_two_rounds_the_undisturbed_sample_counts():
    slow = Sample("memory", "float32", (8,), 2.0, 0.5)
    quick = Sample("memory", "float32", (8,), 1.0, 0.1)
    other = Sample("memory", "float32", (16,), 9.0, 0.1)
    assert fastest([slow, other, quick]) == [quick, other]


def test_a_device_that_goes_away_is_a_coded_error():
    def gone():
        raise jax.errors.JaxRuntimeError("INTERNAL: device lost")

    with pytest.raises(ClusterError) as caught:
        Timer(1.0).add("product", "float32", (8, 8, 8), gone)
    assert caught.value.code == "SHARDC-103"
    assert "device lost" in caught.value.message


def test_the_timer_says_how_busy_the_machine_was():
    ticks = iter([0.0, *(t for step in range(40) for t in (10.0 * step, 10.0 * step + 1))])
    timer = Timer(1e9, repeats=4, clock=lambda: next(ticks))
    timer.add("call", "float32", (), lambda: jax.numpy.zeros(()), 1)
    assert timer.samples[0].seconds == pytest.approx(1.0)
    assert timer.busy == 0.0


def test_what_a_call_does_besides_is_taken_off_down_to_the_noise():
    ticks = iter([0.0, *(t for step in range(80) for t in (10.0 * step, 10.0 * step + 5))])
    timer = Timer(1e9, repeats=4, clock=lambda: next(ticks))
    for less_s, left_s in ((0.75, 2.0), (2.25, 0.02 * 5)):
        call = functools.partial(jax.numpy.zeros, ())
        found = timer.add("all_reduce", "float32", (), call, 1, inside=4, less_s=less_s)
        assert found == pytest.approx(left_s / 4)


def test_work_that_measures_the_host_does_not_count():
    call = Sample("call", "float32", (16,), 5e-5, 0.0)
    launch = Sample("launch", "float32", (8,), 6e-5, 0.0)
    products = [
        Sample("product", "bfloat16", (n, n, n), seconds, 0.0)
        for n, seconds in ((2048, 5.1e-5), (4096, 2e-4), (8192, 1.4e-3))
    ]
    hidden = [Sample("memory", "float32", (n,), n / 4e12, 0.0) for n in (1 << 20, 1 << 24)]
    assert of_devices([call, launch, *products, *hidden]) == [
        *(call, launch),
        *products[1:],
        hidden[1],  # there must be one
    ]
