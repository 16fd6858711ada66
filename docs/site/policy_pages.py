from __future__ import annotations
__all__=["pages"]
def pages(): return {}
