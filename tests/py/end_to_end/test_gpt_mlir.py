"""examples/gpt.mlir is the program that tools/make_gpt_mlir.py writes."""

from pathlib import Path

import jax
from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context

from examples.gpt_model import Sizes, init
from tools.make_gpt_mlir import BATCH, gpt_text

FILE = Path(__file__).parents[3] / "examples" / "gpt.mlir"


def attributes_of_main(text: str) -> dict[str, str]:
    """The attributes of @main as text (a module does not outlive its context)."""
    with make_ir_context():
        module = ir.Module.parse(text)
        main = module.body.operations[0]
        arguments = ir.ArrayAttr(main.attributes["arg_attrs"])
        donated = ["tf.aliasing_output" in str(argument) for argument in arguments]
        return {
            "name": str(main.attributes["sym_name"]),
            "type": str(main.attributes["function_type"]),
            "donated": str(donated),
        }


def test_the_file_has_the_arguments_and_results_of_the_step() -> None:
    assert attributes_of_main(FILE.read_text()) == attributes_of_main(gpt_text(Sizes(), BATCH))


def test_the_state_is_donated_and_nothing_else() -> None:
    num_parameters = len(jax.tree.leaves(init(jax.random.key(0), Sizes())))
    donated = [True] * (2 * num_parameters) + [False, False]
    assert attributes_of_main(FILE.read_text())["donated"] == str(donated)
