//! Generated tokens, checked by the models' tokenizers off the request path.

use super::{Engine, Pool, lock};
use crate::canonicity::{Checker, Unusable};

impl Engine {
    /// Has the generated tokens of the pools checked by their models' tokenizers, `dirs`: the models'
    /// folders, in the pools' order. Without a usable one they are trusted.
    pub fn check_generated<'d>(&self, dirs: impl Iterator<Item = &'d std::path::Path>) {
        for (pool, dir) in self.pools.iter().zip(dirs) {
            match Checker::of_model_dir(dir, pool.vocab.clone()) {
                Ok(checker) => {
                    if pool.checker.set(checker).is_ok() {
                        lock(&pool.index).set_check_grown(true);
                    }
                }
                Err(why @ Unusable::Load(_)) => {
                    tracing::info!(pool = %pool.name, %why, "generated tokens are trusted");
                }
                Err(why) => {
                    tracing::warn!(pool = %pool.name, %why, "generated tokens are trusted");
                }
            }
        }
    }

    /// Whether generated blocks wait for their check.
    #[must_use]
    pub fn has_grown(&self) -> bool {
        let checked = |pool: &&Pool| pool.checker.get().is_some();
        self.pools
            .iter()
            .filter(checked)
            .any(|pool| lock(&pool.index).has_grown())
    }

    /// Checks at most so many generated blocks of each pool. False: there were none.
    pub fn judge_grown(&self, most: usize) -> bool {
        let mut any = false;
        for pool in &self.pools {
            let Some(checker) = pool.checker.get() else {
                continue;
            };
            let blocks = lock(&pool.index).take_grown(most);
            if blocks.is_empty() {
                continue;
            }
            any = true;
            let judged: Vec<bool> = blocks
                .iter()
                .map(|block| checker.is_canonical(&block.tokens, block.context, block.until))
                .collect();
            let mut index = lock(&pool.index);
            for (block, canonical) in blocks.iter().zip(judged) {
                index.judge_grown(block, canonical);
            }
        }
        if any {
            self.dirty.notify_one();
        }
        any
    }
}
