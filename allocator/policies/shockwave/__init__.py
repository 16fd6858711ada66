"""Shockwave (Zheng et al., NSDI 2023): a market over the coming rounds."""
