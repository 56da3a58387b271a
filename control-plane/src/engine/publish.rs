//! From the indices to the table.

use std::sync::Arc;
use std::time::Duration;

use super::members::changed_groups;
use super::{Engine, lock};

impl Engine {
    /// Writes what has changed to the table. True: there is more to do.
    pub fn publish(&self) -> bool {
        let mut more = false;
        let mut changed = false;
        let publishing = lock(&self.publishing);
        let generation = lock(&self.table).generation();
        for pool in &self.pools {
            let mut index = lock(&pool.index);
            // Of all that hold something: whoever goes is forgotten by the index first.
            let numbers = lock(&self.fleet).numbers();
            let groups = changed_groups(pool, &mut index, &numbers);
            more |= index.stats().unsettled > 0;
            // The index stays locked: what a later batch says must not be overtaken.
            let mut table = lock(&self.table);
            for (anchor, body) in groups {
                changed |= match body {
                    Some(body) => table.upsert(anchor, body),
                    None => table.remove(anchor),
                };
            }
        }
        drop(publishing);
        if lock(&self.table).generation() != generation {
            self.announce();
        }
        if changed {
            self.wake();
        }
        more
    }

    /// Does a bounded part of the work that credits need, where [`Self::publish`] says there is some.
    pub fn settle(&self) {
        for pool in &self.pools {
            let mut index = lock(&pool.index);
            if index.stats().unsettled > 0 {
                index.settle();
            }
        }
        self.dirty.notify_one();
    }

    /// Size of the table: its bytes, pages, newest sequence number and groups.
    #[must_use]
    pub fn table_size(&self) -> TableSize {
        let table = lock(&self.table);
        TableSize {
            bytes: table.bytes(),
            pages: table.page_count(),
            seq: table.seq(),
            groups: table.len(),
            generation: table.generation(),
        }
    }
}

/// See [`Engine::table_size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// Of all pages.
    pub bytes: usize,
    /// Pages.
    pub pages: u32,
    /// Newest sequence number.
    pub seq: u64,
    /// Groups.
    pub groups: usize,
    /// Page layout.
    pub generation: u32,
}

/// Publishes changes `gather` after the first of them, for ever.
pub async fn publish_loop(engine: Arc<Engine>, gather: Duration) {
    loop {
        engine.dirty.notified().await;
        tokio::time::sleep(gather).await;
        let engine = engine.clone();
        let done = tokio::task::spawn_blocking(move || {
            if engine.publish() {
                engine.settle();
            }
        });
        if done.await.is_err() {
            tracing::error!("publishing failed");
        }
    }
}
