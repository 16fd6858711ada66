"""Who is to run where: the decision core told of real jobs, and what follows from its answers."""
