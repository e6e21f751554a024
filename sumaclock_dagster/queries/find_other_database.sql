select datname from pg_catalog.pg_database where datname <> %(database)s order by oid limit 1
