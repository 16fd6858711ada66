"""What policies of one kind have in common: programs, programs with pairs, closed forms and orders."""

from allocator.policies.base.ordering import OrderPolicy, fill_in_order
from allocator.policies.base.packed import PackedPolicy, PairingPolicy
from allocator.policies.base.programs import BlindPolicy, ClosedFormPolicy, ProgramPolicy

__all__ = [
    "BlindPolicy",
    "ClosedFormPolicy",
    "OrderPolicy",
    "PackedPolicy",
    "PairingPolicy",
    "ProgramPolicy",
    "fill_in_order",
]
