"""ElasticFlow (Gu et al., ASPLOS 2023): what only its artifact has."""
