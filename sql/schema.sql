-- Schema sumaclock after first_boot.sql and all migrations: to be read and compared, not to be run.
-- Written by `python -m tests.dump_schema`; never edited by hand.

CREATE SCHEMA sumaclock;

ALTER SCHEMA sumaclock OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.run_status AS ENUM (
    'pending',
    'running',
    'done',
    'failed',
    'skipped'
);

ALTER TYPE sumaclock.run_status OWNER TO sumaclock_owner;

CREATE TYPE sumaclock.run_trigger AS ENUM (
    'clock',
    'manual',
    'catch_up',
    'request'
);

ALTER TYPE sumaclock.run_trigger OWNER TO sumaclock_owner;

CREATE FUNCTION sumaclock.clock_settings() RETURNS TABLE(name text, value text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ select s.name, s.setting from pg_catalog.pg_settings as s where s.name ~ '^cron[.]' order by s.name $$;

ALTER FUNCTION sumaclock.clock_settings() OWNER TO postgres;

COMMENT ON FUNCTION sumaclock.clock_settings() IS 'The settings of pg_cron, for roles that may not see all settings.';

CREATE FUNCTION sumaclock.oldest_transaction() RETURNS TABLE(seconds double precision, who text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select extract(epoch from clock_timestamp() - held.since)::double precision, held.who
    from (
        select a.xact_start as since,
               format('process %s, role %s, database %s', a.pid, coalesce(a.usename::text, '-'), coalesce(a.datname::text, '-')) as who
        from pg_catalog.pg_stat_activity as a
        where (a.backend_xmin is not null or a.backend_xid is not null)
          and a.pid <> pg_backend_pid() and a.backend_type <> 'autovacuum worker'
        union all
        select p.prepared, format('prepared transaction %s, role %s, database %s', p.gid, p.owner, p.database)
        from pg_catalog.pg_prepared_xacts as p
    ) as held
    where held.since is not null
    order by held.since
    limit 1
$$;

ALTER FUNCTION sumaclock.oldest_transaction() OWNER TO postgres;

COMMENT ON FUNCTION sumaclock.oldest_transaction() IS 'The transaction that holds back vacuum most: its age in seconds, and whose it is.';

CREATE TABLE sumaclock.cron_jobs (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    kind text NOT NULL,
    organization_id text NOT NULL,
    user_id text NOT NULL,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    schedule text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT cron_jobs_kind_check CHECK ((kind ~ '^[A-Za-z0-9_.:-]{1,100}$'::text)),
    CONSTRAINT cron_jobs_organization_id_check CHECK (((length(organization_id) >= 1) AND (length(organization_id) <= 200))),
    CONSTRAINT cron_jobs_schedule_check CHECK (((length(schedule) >= 1) AND (length(schedule) <= 999))),
    CONSTRAINT cron_jobs_user_id_check CHECK (((length(user_id) >= 1) AND (length(user_id) <= 200)))
);

ALTER TABLE sumaclock.cron_jobs OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.cron_jobs IS 'What is to run and when: kind, owner, payload and a raw UTC schedule. Each enabled row has one clock job in pg_cron.';

COMMENT ON COLUMN sumaclock.cron_jobs.schedule IS 'Five cron fields in UTC, or "N seconds" where pg_cron knows it.';

CREATE TABLE sumaclock.cron_runs (
    id bigint NOT NULL,
    job_id uuid NOT NULL,
    scheduled_at timestamp with time zone DEFAULT date_trunc('minute'::text, now()) NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    heartbeat_at timestamp with time zone,
    dagster_run_id uuid,
    claimed_by integer,
    status sumaclock.run_status DEFAULT 'pending'::sumaclock.run_status NOT NULL,
    trigger sumaclock.run_trigger DEFAULT 'clock'::sumaclock.run_trigger NOT NULL,
    attempts smallint DEFAULT 0 NOT NULL,
    lost smallint DEFAULT 0 NOT NULL,
    result jsonb,
    error text,
    CONSTRAINT cron_runs_attempts_check CHECK ((attempts >= 0)),
    CONSTRAINT cron_runs_lost_check CHECK ((lost >= 0)),
    CONSTRAINT done_has_no_error CHECK (((status <> 'done'::sumaclock.run_status) OR (error IS NULL))),
    CONSTRAINT ended_has_reason CHECK (((status <> ALL (ARRAY['failed'::sumaclock.run_status, 'skipped'::sumaclock.run_status])) OR (error IS NOT NULL))),
    CONSTRAINT ended_has_time CHECK (((finished_at IS NOT NULL) OR (status = ANY (ARRAY['pending'::sumaclock.run_status, 'running'::sumaclock.run_status])))),
    CONSTRAINT only_pending_is_unclaimed CHECK (((status = 'pending'::sumaclock.run_status) OR (claimed_by IS NOT NULL))),
    CONSTRAINT pending_is_unclaimed CHECK (((status <> 'pending'::sumaclock.run_status) OR ((claimed_by IS NULL) AND (started_at IS NULL) AND (finished_at IS NULL) AND (result IS NULL)))),
    CONSTRAINT running_is_claimed CHECK (((status <> 'running'::sumaclock.run_status) OR ((started_at IS NOT NULL) AND (heartbeat_at IS NOT NULL) AND (finished_at IS NULL) AND (attempts > 0) AND (result IS NULL)))),
    CONSTRAINT times_are_readable CHECK (((scheduled_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (scheduled_at < '9999-01-01 00:00:00+00'::timestamp with time zone) AND (due_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (due_at < '9999-01-01 00:00:00+00'::timestamp with time zone)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='20000', autovacuum_vacuum_cost_delay='0');

ALTER TABLE sumaclock.cron_runs OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.cron_runs IS 'The work orders: one row a firing, written by pg_cron, claimed and ended by a worker.';

COMMENT ON COLUMN sumaclock.cron_runs.scheduled_at IS 'The minute (UTC) that the run was meant for; lateness counts from here.';

COMMENT ON COLUMN sumaclock.cron_runs.due_at IS 'From when a pending run may be claimed: its firing, or its next try.';

COMMENT ON COLUMN sumaclock.cron_runs.claimed_by IS 'The worker that claimed the run last: null while it is pending, 0 when it ended without a worker.';

COMMENT ON COLUMN sumaclock.cron_runs.attempts IS 'Claims so far; with the id and claimed_by it names one claim.';

COMMENT ON COLUMN sumaclock.cron_runs.lost IS 'How many of the attempts ended with their worker instead of their handler.';

ALTER TABLE sumaclock.cron_runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sumaclock.cron_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE sumaclock.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE sumaclock.migrations OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.migrations IS 'Which files of sql/migrations this database has got, with their SHA-256.';

CREATE VIEW sumaclock.worker_sessions AS
 SELECT (l.objid)::bigint AS worker_id,
    l.pid
   FROM (pg_locks l
     JOIN pg_database d ON ((d.oid = l.database)))
  WHERE ((d.datname = current_database()) AND (l.locktype = 'advisory'::text) AND l.granted AND (l.classid = (1937075553)::oid) AND (l.objsubid = 2) AND (l.objid > (0)::oid));

ALTER TABLE sumaclock.worker_sessions OWNER TO sumaclock_owner;

COMMENT ON VIEW sumaclock.worker_sessions IS 'The workers that PostgreSQL sees alive: one row for each session that holds a worker''s lock.';

CREATE TABLE sumaclock.workers (
    id integer NOT NULL,
    code_version text NOT NULL,
    requested_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    heartbeat_at timestamp with time zone,
    retires_at timestamp with time zone,
    stopped_at timestamp with time zone,
    dagster_run_id uuid,
    host text,
    pid integer,
    CONSTRAINT started_is_whole CHECK ((((started_at IS NULL) = (heartbeat_at IS NULL)) AND ((started_at IS NULL) = (retires_at IS NULL))))
);

ALTER TABLE sumaclock.workers OWNER TO sumaclock_owner;

COMMENT ON TABLE sumaclock.workers IS 'Every worker, from its request to its end. A started worker lives while a session holds advisory lock (1937075553, id).';

COMMENT ON COLUMN sumaclock.workers.retires_at IS 'From here on the worker claims nothing more; its replacement is launched before.';

ALTER TABLE sumaclock.workers ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME sumaclock.workers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE ONLY sumaclock.cron_jobs
    ADD CONSTRAINT cron_jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.cron_runs
    ADD CONSTRAINT cron_runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY sumaclock.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY sumaclock.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX cron_jobs_owner ON sumaclock.cron_jobs USING btree (organization_id, user_id);

CREATE INDEX cron_runs_claimed ON sumaclock.cron_runs USING btree (claimed_by) WHERE (claimed_by IS NOT NULL);

CREATE INDEX cron_runs_job ON sumaclock.cron_runs USING btree (job_id, scheduled_at DESC);

CREATE INDEX cron_runs_pending ON sumaclock.cron_runs USING btree (due_at, id) WHERE (claimed_by IS NULL);

CREATE INDEX cron_runs_scheduled ON sumaclock.cron_runs USING brin (scheduled_at) WITH (pages_per_range='32');

CREATE INDEX workers_open ON sumaclock.workers USING btree (id) WHERE (stopped_at IS NULL);

ALTER TABLE ONLY sumaclock.cron_runs
    ADD CONSTRAINT cron_runs_job_id_fkey FOREIGN KEY (job_id) REFERENCES sumaclock.cron_jobs(id) ON DELETE CASCADE;

GRANT USAGE ON SCHEMA sumaclock TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.clock_settings() FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.clock_settings() TO sumaclock_owner;
GRANT ALL ON FUNCTION sumaclock.clock_settings() TO sumaclock_app;

REVOKE ALL ON FUNCTION sumaclock.oldest_transaction() FROM PUBLIC;
GRANT ALL ON FUNCTION sumaclock.oldest_transaction() TO sumaclock_owner;
GRANT ALL ON FUNCTION sumaclock.oldest_transaction() TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.cron_jobs TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.cron_runs TO sumaclock_app;

GRANT SELECT ON TABLE sumaclock.migrations TO sumaclock_app;

GRANT SELECT ON TABLE sumaclock.worker_sessions TO sumaclock_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE sumaclock.workers TO sumaclock_app;
