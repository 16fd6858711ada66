"""The policies, one small file per family. Import them by name through `allocator.get_policy`."""
