insert into sumaclock.workers (code_version, code_location) values (%(code_version)s, %(code_location)s) returning id
