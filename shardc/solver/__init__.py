"""The solver: numbers in, plan out. No JAX, no MLIR; the only package that uses OR-tools."""

from shardc.solver.problem.problem import Evaluation, Problem, Progress, Solution, evaluate
from shardc.solver.solve import solve

__all__ = ["Evaluation", "Problem", "Progress", "Solution", "evaluate", "solve"]
