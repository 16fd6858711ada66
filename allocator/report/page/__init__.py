"""What a report is made of: its sections as markup, and the data that its scripts draw from."""
