"""Commands that run a service, or speak with one."""
