"""Programs with throughputs to keep: worth, ratios, and which floors can be kept."""
