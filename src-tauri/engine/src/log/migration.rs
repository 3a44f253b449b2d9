//! Migrations: how a database of an older version becomes one of this version.
//!
//! Invariant: a copy is made before the first step and kept, and each step commits together with its number, so that a
//! crash anywhere leaves a database of one version or of the next, and a step never runs twice.

use std::path::Path;

use protocol::Timestamp;
use rusqlite::{Connection, TransactionBehavior};

use super::{
    OpenError, backup,
    database::{APPLICATION_ID, worded},
};
use crate::{Harness, gate::gate_blocking, mutant::mutated};

/// Schema versions, oldest first.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("schema/0001.sql"),
    include_str!("schema/0002.sql"),
    include_str!("schema/0003.sql"),
    include_str!("schema/0004.sql"),
    include_str!("schema/0005.sql"),
];

/// Applies the steps after `from`. Says how many copies it made.
pub(super) fn run(
    connection: &mut Connection,
    path: &Path,
    from: i64,
    steps: &[&str],
    now: Timestamp,
    harness: &Harness,
) -> Result<u64, OpenError> {
    let done = usize::try_from(from).unwrap_or(0);
    let mut backups = 0;
    if done > 0 && done < steps.len() {
        gate_blocking!(harness, MigrationBegins);
        let name = format!("before-schema-{}", steps.len());
        backup::beside(connection, path, &name, now).map_err(|source| OpenError::Backup {
            path: path.to_owned(),
            source,
        })?;
        backups = 1;
        gate_blocking!(harness, MigrationBackedUp);
    }
    for (index, script) in steps.iter().enumerate().skip(done) {
        step(connection, index, script, harness).map_err(|error| worded(path, error))?;
    }
    Ok(backups)
}

fn step(
    connection: &mut Connection,
    index: usize,
    script: &str,
    harness: &Harness,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(script)?;
    gate_blocking!(harness, MigrationApplied);
    if index == 0 {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.execute(
            "INSERT INTO meta (name, value) VALUES ('log_id', lower(hex(randomblob(16))))",
            [],
        )?;
    }
    if mutated!(harness, VersionAfterTx) {
        transaction.commit()?;
        gate_blocking!(harness, MigrationNumbered);
        return connection.pragma_update(None, "user_version", index as i64 + 1);
    }
    transaction.pragma_update(None, "user_version", index as i64 + 1)?;
    gate_blocking!(harness, MigrationNumbered);
    transaction.commit()?;
    gate_blocking!(harness, MigrationCommitted);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step that would fail if it ran twice, and one that needs the first.
    const EXTRA: [&str; 2] = [
        "CREATE TABLE extra (word TEXT); INSERT INTO extra VALUES ('one');",
        "UPDATE extra SET word = word || ' two';",
    ];

    fn with_extra() -> Vec<&'static str> {
        MIGRATIONS.iter().copied().chain(EXTRA).collect()
    }

    fn at(path: &Path, from: i64, steps: &[&str]) -> (Connection, Result<u64, OpenError>) {
        let mut connection = Connection::open(path).unwrap();
        let harness = Harness::default();
        let done = run(
            &mut connection,
            path,
            from,
            steps,
            Timestamp::default(),
            &harness,
        );
        (connection, done)
    }

    fn version(connection: &Connection) -> i64 {
        connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn every_step_is_applied_once_and_a_copy_of_the_old_version_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.sqlite3");
        let known = MIGRATIONS.len() as i64;
        let (connection, made) = at(&path, 0, MIGRATIONS);
        assert_eq!(
            made.unwrap(),
            0,
            "there is nothing to keep of a new database"
        );
        drop(connection);

        let (connection, made) = at(&path, known, &with_extra());
        assert_eq!(made.unwrap(), 1);
        assert_eq!(version(&connection), known + 2);
        let word: String = connection
            .query_row("SELECT word FROM extra", [], |row| row.get(0))
            .unwrap();
        assert_eq!(word, "one two");

        let copies: Vec<_> = std::fs::read_dir(dir.path().join("backups"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(copies.len(), 1, "{copies:?}");
        assert_eq!(version(&Connection::open(&copies[0]).unwrap()), known);
    }

    #[test]
    fn a_step_that_fails_leaves_the_version_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.sqlite3");
        let known = MIGRATIONS.len() as i64;
        drop(at(&path, 0, MIGRATIONS));
        let mut steps = with_extra();
        steps.push("CREATE TABLE more (word TEXT); INSERT INTO nowhere VALUES (1);");
        let (connection, made) = at(&path, known, &steps);
        assert!(matches!(made, Err(OpenError::Storage(_))));
        assert_eq!(version(&connection), known + 2);
        let more: i64 = connection
            .query_row(
                "SELECT count(*) FROM sqlite_schema WHERE name = 'more'",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(more, 0, "half of the step stayed");
    }
}
