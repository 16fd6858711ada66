"""Why jobs of finished runs waited."""
