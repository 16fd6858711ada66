"""Gavel (Narayanan et al., OSDI 2020): what only its artifact has."""
