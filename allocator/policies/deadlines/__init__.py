"""Jobs with deadlines and any number of GPUs: ElasticFlow (Gu et al., ASPLOS 2023) and what it is compared with."""
