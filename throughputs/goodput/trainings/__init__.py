"""How jobs of a model train, whatever a scheduler gives them: what a simulated world knows, and schedulers learn."""

from throughputs.goodput.trainings.generator import training_trace
from throughputs.goodput.trainings.profiled import find_trainings, trainings_of
from throughputs.goodput.trainings.training import Training, Trainings

__all__ = ["Training", "Trainings", "find_trainings", "training_trace", "trainings_of"]
