"""What is known of jobs whose goodput changes as they train."""
