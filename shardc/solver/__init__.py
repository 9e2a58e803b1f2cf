"""Numbers in, plans out: strategies of ops, layers of ops, stages of layers. No JAX, no MLIR."""

from shardc.solver.problem.problem import Evaluation, Problem, Progress, Solution, evaluate
from shardc.solver.solve import solve

__all__ = ["Evaluation", "Problem", "Progress", "Solution", "evaluate", "solve"]
