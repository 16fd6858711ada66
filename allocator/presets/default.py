"""What a user of today wants, where nothing else is said."""

from allocator.presets.preset import Preset
from allocator.simulator.settings import SimulatorSettings

__all__ = ["DEFAULT"]

# Restoring a checkpoint on up to 8 GPUs takes 30 s on average in Pollux (OSDI'21, sec. 5.3); gangs over several servers
# take 60 s in the simulators of Helios (SC'21) and Lucid (ASPLOS'23).
DEFAULT = Preset(
    simulator=SimulatorSettings(
        restart_penalty_seconds=30.0,
        restart_penalty_by_gpus=((9, 60.0),),
        restart_when_moved=True,
        restart_delays=True,
    )
)
