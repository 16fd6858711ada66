"""Fair shares: of every type, of the cluster, by Nash welfare, without gain from misstatements or without envy."""
