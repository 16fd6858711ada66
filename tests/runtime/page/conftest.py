import pytest

# the web door is an extra
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
