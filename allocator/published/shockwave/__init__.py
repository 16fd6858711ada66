"""Shockwave (Zheng et al., NSDI 2023): what only its artifact has."""
