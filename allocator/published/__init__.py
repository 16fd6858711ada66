"""Published systems, each whole in one file: its world, what its policies do otherwise, and its rules.

They are registered by entry points in the group ``allocator.presets``, as those of any other package; nothing else
knows this package.
"""
