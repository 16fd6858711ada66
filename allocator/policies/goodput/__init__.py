"""Selections by goodput: Sia, Pollux and Optimus, which choose on how many GPUs of which type each job runs."""
