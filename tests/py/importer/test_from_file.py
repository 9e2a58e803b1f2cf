"""Whatever a file holds, the answer is a module or an error that names file and line."""

import contextlib
import gzip
import io
import random
import subprocess
import sys
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir as jax_mlir

from shardc.errors import ImportFileError
from shardc.importer import parse_module
from shardc.importer.from_file import import_file
from shardc.importer.program import Argument, Result
from shardc.ir.pass_manager import run_passes
from shardc.ir.walk import main_function, ops, where
from shardc.passes.pipeline import NORMALIZE


def step(w: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return w - jax.nn.relu(x).sum(), x.sum()


LOWERED = jax.jit(step, donate_argnums=0).lower(jnp.ones(3), jnp.ones((2, 3)))


def bytecode() -> bytes:
    written = io.BytesIO()
    LOWERED.compiler_ir("stablehlo").operation.write_bytecode(written)
    return written.getvalue()


def artifact() -> bytes:
    text = LOWERED.as_text(debug_info=True)
    portable = stablehlo.serialize_portable_artifact_str(text, stablehlo.get_minimum_version())
    assert isinstance(portable, bytes)
    return portable


FORMS = {
    "text": lambda: LOWERED.as_text(debug_info=True).encode(),
    "bytecode": bytecode,
    "portable": artifact,
    "gzipped": lambda: gzip.compress(bytecode()),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_module_gives_the_same_program(form: str, tmp_path: Path) -> None:
    file = tmp_path / "step"
    file.write_bytes(FORMS[form]())
    imported = import_file(file)
    assert imported.arguments == (
        Argument("w", (3,), "float32", donated=True, aliased_result=0),
        Argument("x", (2, 3), "float32"),
    )
    assert imported.results == (
        Result("result[0]", (3,), "float32"),
        Result("result[1]", (), "float32"),
    )
    run_passes(imported.module, NORMALIZE)
    assert str(imported.module).count("func.func") == 1


def test_without_locations_arguments_are_numbered_and_ops_have_the_files_lines(
    tmp_path: Path,
) -> None:
    text = LOWERED.as_text()
    file = tmp_path / "step.mlir"
    file.write_text(text)
    imported = import_file(file)
    assert [argument.name for argument in imported.arguments] == ["argument 0", "argument 1"]
    main = main_function(imported.module.operation)
    places = {where(op) for op in ops(main)}
    assert places <= {f"step.mlir:{i}" for i in range(1, len(text.splitlines()) + 1)}
    assert len(places) > 2


MALFORMED = {
    "empty": (b"", "the file is empty", None),
    "words": (b"hello\n", "custom op 'hello' is unknown", 1),
    "type": (
        b"module {\n  func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> {\n"
        b"    return %a : tensor<2xf32>\n  }\n}\n",
        "doesn't match function result type",
        3,
    ),
    "unknown dialect": (b'\n"foo.bar"() : () -> ()\n', "unregistered dialect", 2),
    "binary": (b"\x7fELF\0\0\0\0", "neither MLIR text nor MLIR bytecode", None),
    "gzip": (b"\x1f\x8bnothing", "gzip", None),
    "truncated": (bytecode()[:200], "is not a module", None),
    "recursion": (b"module attributes {a = " + b"[" * 200_000, r"crashed on it \(SIG", None),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    data, message, line = MALFORMED[case]
    file = tmp_path / "bad.mlir"
    file.write_bytes(data)
    with pytest.raises(ImportFileError, match=message) as caught:
        import_file(file)
    assert caught.value.code == "SHARDC-120"
    assert caught.value.where == (str(file) if line is None else f"{file}:{line}")


@pytest.mark.parametrize("seed", range(4))
def test_mutated_bytecode_never_ends_this_process(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    data = bytearray(bytecode())
    for _ in range(4):
        data[chance.randrange(8, len(data))] = chance.randrange(256)
    file = tmp_path / "mutated.mlirbc"
    file.write_bytes(data)
    with contextlib.suppress(ImportFileError):
        import_file(file)


@pytest.mark.slow
def test_names_that_are_not_utf8_are_refused_and_others_are_not(tmp_path: Path) -> None:
    """To read such a name in Python would end this process."""
    file = tmp_path / "names.mlirbc"
    data = bytecode()
    assert b"jit(step)" in data
    file.write_bytes(data.replace(b"jit(step)", b"jit(st\xe4p)"))
    with pytest.raises(ImportFileError, match="not UTF-8"):
        import_file(file)
    text = LOWERED.as_text(debug_info=True).replace("jit(step)", "jit(stäp)")
    file.write_text(text.replace("jit(stäp)", r"\\E4", 1))
    run_passes(import_file(file).module, NORMALIZE)


def test_a_file_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "step.mlir"
    file.write_text(LOWERED.as_text())
    with pytest.raises(ImportFileError, match=r"more than 0\.01 s"):
        import_file(file, timeout_s=0.01)


@pytest.mark.parametrize("name", ["missing.mlir", "."])
def test_a_path_that_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ImportFileError, match="cannot be read"):
        import_file(tmp_path / name)


F2 = "tensor<2xf32>"
QUANTISED = "tensor<2x!quant.uniform<i8:f32, 0.1:3>>"


def main(argument: str, lines: str, result: str = F2) -> str:
    """Text of a module whose @main takes %a and returns %r."""
    return f"func.func @main(%a: {argument}) -> {result} {{\n{lines}\nreturn %r : {result}\n}}"


REFUSED = {
    "none": ("SHARDC-121", "module {}", "0 public functions"),
    "callback": (
        "SHARDC-123",
        main(F2, f"%r = stablehlo.custom_call @xla_ffi_python_cpu_callback(%a) : ({F2}) -> {F2}"),
        "calls the host",
    ),
    "effects": (
        "SHARDC-126",
        main(
            F2, f"%r = stablehlo.custom_call @count(%a) {{has_side_effect = true}} : ({F2}) -> {F2}"
        ),
        "'count' gives other results",
    ),
    "dynamic argument": (
        "SHARDC-124",
        main("tensor<?xf32>", "%r = stablehlo.sine %a : tensor<?xf32>", "tensor<?xf32>"),
        r"argument 'argument 0' is a tensor<\?xf32>",
    ),
    "unranked": (
        "SHARDC-124",
        "func.func @main(%a: tensor<*xf32>) { return }",
        "known shape",
    ),
    "dynamic op": (
        "SHARDC-124",
        main(
            "tensor<1xi32>",
            "%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
            "%d = stablehlo.dynamic_broadcast_in_dim %c, %a, dims = [] :"
            " (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>\n"
            "%r = stablehlo.reduce(%d init: %c) applies stablehlo.add across dimensions = [0] :"
            " (tensor<?xf32>, tensor<f32>) -> tensor<f32>",
            "tensor<f32>",
        ),
        "'stablehlo.dynamic_broadcast_in_dim' is a",
    ),
    "quantised": (
        "SHARDC-124",
        main(F2, f"%r = stablehlo.uniform_quantize %a : ({F2}) -> {QUANTISED}", QUANTISED),
        "quantised types",
    ),
    "wide integers": (
        "SHARDC-124",
        "func.func @main(%a: tensor<2xi128>) { return }",
        "'i128' have no counterpart",
    ),
    "another dialect": (
        "SHARDC-120",
        main(F2, f"%r = arith.addf %a, %a : {F2}"),
        "'arith.addf' is not a StableHLO op",
    ),
    "resource": (
        "SHARDC-120",
        main(F2, f"%r = stablehlo.constant dense_resource<blob> : {F2}")
        + '\n{-# dialect_resources: { builtin: { blob: "0x040000000000803F00000040" } } #-}',
        "is a resource",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_a_module_that_cannot_be_planned_is_refused(case: str, tmp_path: Path) -> None:
    code, text, message = REFUSED[case]
    file = tmp_path / "module.mlir"
    file.write_text(text)
    with pytest.raises(ImportFileError, match=message) as caught:
        import_file(file)
    assert caught.value.code == code


@pytest.mark.slow
def test_any_public_function_and_any_producer(tmp_path: Path) -> None:
    """A function of another name, and what `jax.export` serialises, for several platforms too."""
    file = tmp_path / "module"
    file.write_text(main(F2, f"%r = stablehlo.sine %a : {F2}").replace("@main", "@forward"))
    assert import_file(file).arguments == (Argument("argument 0", (2,), "float32"),)
    exported = jax.export.export(jax.jit(step), platforms=["cpu", "cuda"])
    file.write_bytes(exported(jnp.ones(3), jnp.ones((2, 3))).mlir_module_serialized)
    imported = import_file(file)
    assert [argument.shape for argument in imported.arguments] == [(), (3,), (2, 3)]
    run_passes(imported.module, NORMALIZE)
    dynamic = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 3"), jnp.float32)
    file.write_bytes(jax.export.export(jax.jit(step))(jnp.ones(3), dynamic).mlir_module_serialized)
    with pytest.raises(ImportFileError, match=r"tensor<\?x3xf32>"):
        import_file(file)


DIALECTS = (
    "affine", "arith", "builtin", "cf", "chlo", "complex", "func", "gpu", "llvm", "math", "memref",
    "mhlo", "mpmd", "nvgpu", "nvvm", "quant", "scf", "sdy", "shape", "sparse_tensor", "stablehlo",
    "tensor", "vector", "vhlo",
)  # fmt: skip


def loaded(context: ir.Context) -> set[str]:
    found = set()
    for name in DIALECTS:
        with contextlib.suppress(IndexError, ValueError):
            found.add(context.dialects[name].descriptor.namespace)
    return found


def test_the_child_knows_the_dialects_of_jax_without_importing_it() -> None:
    known = loaded(parse_module.child_context())
    assert known == loaded(jax_mlir.make_ir_context())
    assert known >= {"func", "stablehlo", "chlo", "sdy", "mhlo", "vhlo"}
    program = (
        "import sys, runpy; space = runpy.run_path(sys.argv[1]); space['child_context']()\n"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", program, parse_module.__file__], check=True)
