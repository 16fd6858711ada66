"""The policies, one small file per family. Import them by name through `allocator.get_policy`.

`base` has what they have in common; each other room the policies of one system, or of one idea.
"""
