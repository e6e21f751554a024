-- Where the process of a Dagster run was seen while it lived. Applied by the owner role.

alter table sumaclock.dagster_launches add column seen_on text;
comment on column sumaclock.dagster_launches.seen_on is 'The machine on which the process of its Dagster run was seen, so that its end is seen there, too. Empty: looked for and not seen. Null: not looked for yet.';
