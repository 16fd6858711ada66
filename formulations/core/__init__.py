"""What all programs share: polytope, objectives, certificates, reductions."""
