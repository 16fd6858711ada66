"""Selections by goodput: the programs of Sia, Pollux and Optimus over configurations."""

from formulations.goodput.optimus import least_remaining_time, marginal_gains
from formulations.goodput.pollux import PowerMean, Selection, fittest_selection
from formulations.goodput.pollux_nodes import NodeProgram, NodeSelection, solve_on_nodes
from formulations.goodput.sia import SiaProgram, relative_goodput

__all__ = [
    "NodeProgram",
    "NodeSelection",
    "PowerMean",
    "Selection",
    "SiaProgram",
    "fittest_selection",
    "least_remaining_time",
    "marginal_gains",
    "relative_goodput",
    "solve_on_nodes",
]
