"""Gandiva (Xiao et al., OSDI 2018): node sets on which gangs of one size take turns."""
