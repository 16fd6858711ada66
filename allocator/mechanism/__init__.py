"""The decision core: from shares and plans to who runs as what on which GPUs."""
