-- The databases of this server that first_boot.sql has made ready.
select d.datname::text
from pg_catalog.pg_db_role_setting s
join pg_catalog.pg_database d on d.oid = s.setdatabase
where s.setrole = 0 and exists (select from unnest(s.setconfig) c where c like 'sumaclock.app_role=%')
order by d.datname
