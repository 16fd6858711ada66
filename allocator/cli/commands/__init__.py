"""The commands, one file each; `allocator.cli.app` reads a file when its command is asked for."""
