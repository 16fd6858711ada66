"""What the service is asked, and what it shows."""
