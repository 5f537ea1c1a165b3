"""Recording from inside a framework: each module is one framework, imported only when it is used."""
