# SPDX-License-Identifier: Apache-2.0
"""The database's layout as numbered migrations: append, never edit one that was released."""

from slurm_coloc.adapters.store.database import Database

# A run whose own need ran out of GPU memory: no neighbour's doing.
_RAN_OUT = """{0}.outcome = 'oom-gpu' AND {0}.share_mib IS NOT NULL
             AND coalesce({0}.blame, '') NOT IN
               ('neighbour', 'foreign', 'full-gpu', 'mps-fault', 'hardware')"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    # 1: decisions, runs, work list, events
    (
        """CREATE TABLE decisions (
             id TEXT PRIMARY KEY, cluster TEXT NOT NULL, made_s REAL NOT NULL,
             uid INTEGER NOT NULL, account TEXT, partition TEXT, mode TEXT NOT NULL,
             action TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL,
             shards INTEGER NOT NULL, shard_mib INTEGER NOT NULL, shards_per_gpu INTEGER NOT NULL,
             estimator TEXT, memory_mib INTEGER, upper_mib INTEGER, smact REAL,
             fingerprint TEXT, options TEXT, features TEXT NOT NULL, request TEXT NOT NULL,
             exclusive_tres TEXT NOT NULL, may_requeue INTEGER NOT NULL,
             job_id INTEGER, bound INTEGER NOT NULL DEFAULT 0)""",
        "CREATE INDEX decisions_by_model ON decisions (fingerprint, uid)",
        "CREATE INDEX decisions_by_time ON decisions (made_s)",
        "CREATE INDEX decisions_by_mode ON decisions (mode, uid)",
        "CREATE INDEX decisions_unbound ON decisions (made_s) WHERE bound = 0",
        """CREATE TABLE runs (
             decision TEXT NOT NULL REFERENCES decisions (id), job_id INTEGER NOT NULL,
             restart INTEGER NOT NULL, uid INTEGER NOT NULL, submit_s REAL, state TEXT NOT NULL,
             node TEXT, gpu_uuids TEXT, tres TEXT, start_s REAL, end_s REAL, outcome TEXT,
             exit_code INTEGER, peak_mib INTEGER, evidence TEXT, share_mib INTEGER,
             verdict TEXT, open INTEGER NOT NULL DEFAULT 1,
             PRIMARY KEY (decision, job_id, restart))""",
        "CREATE INDEX runs_by_job ON runs (job_id)",
        "CREATE INDEX runs_by_user ON runs (uid)",
        "CREATE INDEX runs_oom ON runs (uid) WHERE outcome = 'oom-gpu'",
        "CREATE INDEX runs_open ON runs (open) WHERE open = 1",
        """CREATE TABLE work (
             decision TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
             uid INTEGER NOT NULL, tres TEXT NOT NULL, held INTEGER NOT NULL DEFAULT 0,
             raised INTEGER NOT NULL DEFAULT 0,
             state TEXT NOT NULL DEFAULT 'open', note TEXT NOT NULL DEFAULT '',
             tries INTEGER NOT NULL DEFAULT 0, created_s REAL NOT NULL, updated_s REAL NOT NULL,
             PRIMARY KEY (decision, job_id, restart))""",
        "CREATE INDEX work_open ON work (state)",
        """CREATE TABLE events (
             at_s REAL NOT NULL, decision TEXT NOT NULL, job_id INTEGER, kind TEXT NOT NULL,
             text TEXT NOT NULL)""",
        "CREATE INDEX events_by_decision ON events (decision)",
        """CREATE TABLE reports (
             cluster TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER, node TEXT NOT NULL,
             at_s REAL NOT NULL, body TEXT NOT NULL)""",
        "CREATE INDEX reports_by_job ON reports (job_id)",
    ),
    # 2: recoveries begun after the job had ended (its dependents have seen that), reports that
    # were used (an id may come again), arrays whose waiting tasks get another request
    (
        "ALTER TABLE work ADD COLUMN late INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE reports ADD COLUMN decision TEXT",
        """CREATE TABLE siblings (
             decision TEXT PRIMARY KEY, array_job_id INTEGER NOT NULL, uid INTEGER NOT NULL,
             was TEXT NOT NULL, tres TEXT NOT NULL, why TEXT NOT NULL, tasks INTEGER NOT NULL,
             state TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT 0, updated_s REAL NOT NULL)""",
        "CREATE INDEX siblings_open ON siblings (state)",
    ),
    # 3: measured peaks by model, what a decision learned from them, and which runs overlapped
    (
        """CREATE TABLE peaks (
             fingerprint TEXT NOT NULL, uid INTEGER NOT NULL, options TEXT NOT NULL,
             gpu TEXT NOT NULL, batch INTEGER NOT NULL, runs INTEGER NOT NULL,
             peak_mib INTEGER NOT NULL, low_mib INTEGER NOT NULL, at_least_mib INTEGER NOT NULL,
             oom_mib INTEGER NOT NULL, estimator TEXT NOT NULL, memory_mib INTEGER NOT NULL,
             context_mib INTEGER NOT NULL, last_s REAL NOT NULL,
             PRIMARY KEY (fingerprint, uid, options, gpu, batch)) WITHOUT ROWID""",
        "CREATE INDEX peaks_by_time ON peaks (last_s)",
        "ALTER TABLE decisions ADD COLUMN learning TEXT",
        "CREATE INDEX runs_by_end ON runs (end_s)",
    ),
    # 4: runs that were put back before they began, and what a run used
    (
        """CREATE TABLE putbacks (
             decision TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
             uid INTEGER NOT NULL, node TEXT NOT NULL, why TEXT NOT NULL, was TEXT,
             excluded INTEGER NOT NULL DEFAULT 0, delayed INTEGER NOT NULL DEFAULT 0,
             state TEXT NOT NULL DEFAULT 'open', note TEXT NOT NULL DEFAULT '',
             tries INTEGER NOT NULL DEFAULT 0, created_s REAL NOT NULL, updated_s REAL NOT NULL,
             PRIMARY KEY (decision, job_id, restart))""",
        "CREATE INDEX putbacks_open ON putbacks (state)",
        "CREATE INDEX putbacks_by_time ON putbacks (created_s)",
        "ALTER TABLE runs ADD COLUMN used TEXT",
        "ALTER TABLE runs ADD COLUMN blame TEXT",
        "ALTER TABLE runs ADD COLUMN method TEXT",
        "ALTER TABLE peaks ADD COLUMN smact REAL",
    ),
    # 5: recoveries by cause and way, with the job's place in the queue and the node that it avoids;
    # time slots
    (
        "ALTER TABLE work ADD COLUMN cause TEXT NOT NULL DEFAULT 'self'",
        "ALTER TABLE work ADD COLUMN way TEXT NOT NULL DEFAULT 'whole'",
        "ALTER TABLE work ADD COLUMN base INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE work ADD COLUMN front INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE work ADD COLUMN raised_s REAL",
        "ALTER TABLE work ADD COLUMN qos TEXT",
        "ALTER TABLE work ADD COLUMN avoid TEXT",
        "ALTER TABLE work ADD COLUMN was TEXT",
        "ALTER TABLE work ADD COLUMN excluded INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX work_by_user ON work (uid, created_s)",
        "CREATE INDEX work_raised ON work (raised_s) WHERE raised_s IS NOT NULL",
        "ALTER TABLE decisions ADD COLUMN slot TEXT",
        """CREATE TABLE slots (
             decision TEXT NOT NULL, job_id INTEGER NOT NULL, uid INTEGER NOT NULL,
             restart INTEGER NOT NULL DEFAULT 0, total_s REAL, used_s REAL NOT NULL DEFAULT 0,
             nice INTEGER NOT NULL DEFAULT 0, signalled_s REAL, placed INTEGER NOT NULL DEFAULT 1,
             behind_s REAL, ended INTEGER NOT NULL DEFAULT 0,
             state TEXT NOT NULL DEFAULT 'open', note TEXT NOT NULL DEFAULT '',
             tries INTEGER NOT NULL DEFAULT 0, created_s REAL NOT NULL, updated_s REAL NOT NULL,
             PRIMARY KEY (decision, job_id))""",
        "CREATE INDEX slots_by_state ON slots (state)",
    ),
    # 6: time limits of runs on shares, and the slowdown that a job bears; the nice value of a job
    # that is recovered, before it was preferred
    (
        "ALTER TABLE decisions ADD COLUMN max_slowdown REAL",
        """CREATE TABLE stretches (
             decision TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
             uid INTEGER NOT NULL, start_s REAL NOT NULL, base_s REAL, set_s REAL,
             lost_s REAL NOT NULL DEFAULT 0, at_s REAL NOT NULL,
             speed REAL NOT NULL DEFAULT 1, others INTEGER NOT NULL DEFAULT 0, alone REAL,
             times INTEGER NOT NULL DEFAULT 0,
             state TEXT NOT NULL DEFAULT 'open', note TEXT NOT NULL DEFAULT '',
             tries INTEGER NOT NULL DEFAULT 0, created_s REAL NOT NULL, updated_s REAL NOT NULL,
             PRIMARY KEY (decision, job_id, restart))""",
        "CREATE INDEX stretches_by_state ON stretches (state) WHERE set_s IS NOT NULL",
        "ALTER TABLE work ADD COLUMN nice INTEGER",
    ),
    # 7: the priority that a job had when its node's gate put it back
    ("ALTER TABLE putbacks ADD COLUMN base INTEGER NOT NULL DEFAULT 0",),
    # 8: runs that held more than they were promised and ended a neighbour by it
    (
        """CREATE TABLE culprits (
             decision TEXT NOT NULL, job_id INTEGER NOT NULL, restart INTEGER NOT NULL,
             uid INTEGER NOT NULL, fingerprint TEXT NOT NULL,
             victim_decision TEXT NOT NULL, victim_job INTEGER NOT NULL,
             victim_restart INTEGER NOT NULL, held_mib INTEGER NOT NULL,
             promised_mib INTEGER NOT NULL, at_s REAL NOT NULL,
             PRIMARY KEY (victim_decision, victim_job, victim_restart))""",
        "CREATE INDEX culprits_by_run ON culprits (decision, job_id, restart)",
        "CREATE INDEX culprits_by_model ON culprits (uid, fingerprint, at_s)",
    ),
    # 9: the names of array tasks
    (
        "ALTER TABLE runs ADD COLUMN array_job_id INTEGER",
        "ALTER TABLE runs ADD COLUMN array_task INTEGER",
        "CREATE INDEX runs_by_task ON runs (array_job_id, array_task)"
        " WHERE array_job_id IS NOT NULL",
    ),
    # 10: jobs that colocd did not place, as agents measured them
    (
        """CREATE TABLE observed (
             job_id INTEGER NOT NULL, node TEXT NOT NULL, since_s REAL NOT NULL,
             until_s REAL NOT NULL, samples INTEGER NOT NULL, gpus INTEGER NOT NULL,
             kind TEXT NOT NULL, total_mib INTEGER NOT NULL, peak_mib INTEGER NOT NULL,
             smact REAL, uid INTEGER, account TEXT, partition TEXT, submit_s REAL, start_s REAL,
             PRIMARY KEY (job_id, node, since_s))""",
        "CREATE INDEX observed_by_time ON observed (until_s)",
        "CREATE INDEX observed_unasked ON observed (since_s) WHERE uid IS NULL",
    ),
    # 11: what happened, counted for metrics: such counts never fall, whatever leaves the history.
    # Ratios by bins of 0.05: bin 20 is above 0.95 and up to 1.
    (
        """CREATE TABLE tallies (
             what TEXT NOT NULL, labels TEXT NOT NULL, n REAL NOT NULL,
             PRIMARY KEY (what, labels)) WITHOUT ROWID""",
        # An INSERT into the view adds to the row.
        "CREATE VIEW tally AS SELECT what, labels, n FROM tallies",
        """CREATE TRIGGER tally_adds INSTEAD OF INSERT ON tally BEGIN
             INSERT OR IGNORE INTO tallies VALUES (new.what, new.labels, 0);
             UPDATE tallies SET n = n + new.n WHERE what = new.what AND labels = new.labels;
           END""",
        """CREATE TRIGGER tally_decisions AFTER INSERT ON decisions BEGIN
             INSERT INTO tally
               VALUES ('decisions', json_array(new.action, new.reason, new.mode), 1);
           END""",
        """CREATE TRIGGER tally_runs AFTER UPDATE OF open ON runs
           WHEN old.open = 1 AND new.open = 0 BEGIN
             INSERT INTO tally
               VALUES ('runs', json_array(coalesce(new.outcome, ''), coalesce(new.verdict, ''),
                 iif(new.share_mib > 0, 'yes', 'no')), 1);
           END""",
        """CREATE TRIGGER tally_peaks AFTER UPDATE OF open ON runs
           WHEN old.open = 1 AND new.open = 0 AND new.share_mib > 0
             AND new.peak_mib IS NOT NULL BEGIN
             INSERT INTO tally SELECT 'reserved', json_array(cast(
               min(80, (20 * new.peak_mib + new.share_mib - 1) / new.share_mib) AS TEXT)), 1;
             INSERT INTO tally SELECT 'reserved', '[]', 1.0 * new.peak_mib / new.share_mib;
             INSERT INTO tally SELECT 'estimate', json_array(cast(
               min(80, (20 * new.peak_mib + memory_mib - 1) / memory_mib) AS TEXT)), 1
               FROM decisions WHERE id = new.decision AND memory_mib > 0;
             INSERT INTO tally SELECT 'estimate', '[]', 1.0 * new.peak_mib / memory_mib
               FROM decisions WHERE id = new.decision AND memory_mib > 0;
           END""",
    ),
    # 12: speeds of trainings beside others
    (
        """CREATE TABLE pairs (
             uid INTEGER NOT NULL, training TEXT NOT NULL, beside TEXT NOT NULL,
             card TEXT NOT NULL, method TEXT NOT NULL, runs REAL NOT NULL,
             log_speed REAL NOT NULL, at_s REAL NOT NULL,
             PRIMARY KEY (uid, training, beside, card, method)) WITHOUT ROWID""",
        "CREATE INDEX pairs_by_time ON pairs (at_s)",
    ),
    # 13: for a history of millions of runs: what colocd and people ask of it, by an index each; the
    # shares that models ran out of, which every submission asks for
    (
        "DROP INDEX decisions_by_model",
        """CREATE INDEX decisions_by_training ON decisions (uid, fingerprint, options)
             WHERE mode = 'on'""",
        "CREATE INDEX decisions_observed ON decisions (job_id) WHERE mode = 'observe'",
        "DROP INDEX runs_by_end",
        "CREATE INDEX runs_by_end ON runs (end_s, node)",
        "CREATE INDEX runs_by_user_and_end ON runs (uid, end_s)",
        "CREATE INDEX reports_by_time ON reports (at_s)",
        "CREATE INDEX work_by_time ON work (created_s)",
        """CREATE TABLE ran_out (
             uid INTEGER NOT NULL, fingerprint TEXT NOT NULL, options TEXT NOT NULL,
             share_mib INTEGER NOT NULL, at_s REAL NOT NULL,
             PRIMARY KEY (uid, fingerprint, options)) WITHOUT ROWID""",
        f"""INSERT INTO ran_out
             SELECT runs.uid, fingerprint, options, max(runs.share_mib), max(coalesce(end_s, 0))
             FROM runs CROSS JOIN decisions ON decisions.id = runs.decision
             WHERE {_RAN_OUT.format("runs")} AND fingerprint IS NOT NULL AND options IS NOT NULL
             GROUP BY 1, 2, 3""",
        f"""CREATE TRIGGER note_ran_out AFTER UPDATE OF open ON runs
           WHEN old.open = 1 AND new.open = 0 AND {_RAN_OUT.format("new")} BEGIN
             INSERT INTO ran_out
               SELECT new.uid, fingerprint, options, new.share_mib, coalesce(new.end_s, 0)
               FROM decisions WHERE id = new.decision AND fingerprint IS NOT NULL
                 AND options IS NOT NULL
               ON CONFLICT DO UPDATE SET share_mib = max(share_mib, excluded.share_mib),
                 at_s = max(at_s, excluded.at_s);
           END""",
        "DROP INDEX runs_oom",
    ),
)


def migrate(db: Database) -> int:
    """Bring the database to the newest layout, one transaction a step; returns its number."""
    number = int(db.execute("PRAGMA user_version").fetchone()[0])
    for step, statements in enumerate(MIGRATIONS[number:], start=number + 1):
        db.conn.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                db.conn.execute(statement)
            db.conn.execute(f"PRAGMA user_version = {step}")
            db.conn.execute("COMMIT")
        except BaseException:
            db.conn.execute("ROLLBACK")
            raise
    return len(MIGRATIONS)
