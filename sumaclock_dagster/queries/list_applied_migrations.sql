select number, name, checksum from sumaclock.migrations order by number
