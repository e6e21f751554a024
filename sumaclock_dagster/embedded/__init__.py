"""The private PostgreSQL cluster: found, made, started and stopped without touching any other."""
