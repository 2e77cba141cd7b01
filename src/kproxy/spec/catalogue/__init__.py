"""The clauses as data, by what they are about: addresses, endpoints, sources, histories."""
