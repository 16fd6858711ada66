"""What a run leaves behind: its record, its tables and the figures made of them."""
