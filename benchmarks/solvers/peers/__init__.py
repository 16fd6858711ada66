"""What one would use otherwise: cvxpy, HiGHS without a modelling layer, and the plain path of the published systems."""

# imported for what they register
from benchmarks.solvers.peers import cvxpy_peers as _cvxpy_peers  # noqa: F401
from benchmarks.solvers.peers import direct_highs as _direct_highs  # noqa: F401
from benchmarks.solvers.peers import published_style as _published_style  # noqa: F401
