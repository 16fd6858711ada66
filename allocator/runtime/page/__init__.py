"""The web door of the service: a live page, metrics, progress that trainers post, and requests; extra ``[serve]``."""
