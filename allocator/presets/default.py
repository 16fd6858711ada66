"""What a user of today wants, where nothing else is said."""

from allocator.mechanism.deficit import DeficitQueue
from allocator.mechanism.settings import MechanismSettings
from allocator.presets.preset import Preset
from allocator.simulator.rules.starts import StartsTakeTime

# What the simulators of Pollux (OSDI'21) and, for gangs of more than 8 GPUs, of Helios (SC'21) and Lucid (ASPLOS'23)
# take a restart to cost.
DEFAULT = Preset(
    mechanism=MechanismSettings(discipline=DeficitQueue(hysteresis_rounds=4.0)),
    world=(
        StartsTakeTime(
            restart_penalty_seconds=30.0,
            restart_penalty_by_gpus=((9, 60.0),),
            restart_when_moved=True,
            restart_delays=True,
        ),
    ),
)
