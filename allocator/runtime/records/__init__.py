"""What has happened, on disk and as it follows from that."""
