"""Chronus (Gao et al., SoCC 2021): what only its artifact has."""
