"""Gangs of a fixed size that take turns: Tiresias, Gandiva and Themis, as ElasticFlow is compared with them."""
