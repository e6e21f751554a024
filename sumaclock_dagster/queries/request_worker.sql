insert into sumaclock.workers (code_version) values (%(code_version)s) returning id
