insert into sumaclock.migrations (number, name, checksum) values (%(number)s, %(name)s, %(checksum)s)
