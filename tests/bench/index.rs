//! The control plane's rate, from event frames as vLLM sends them to the index, and what a block costs.
//!
//! One thread, synthetic prompts of 2,048 tokens (half of them a continuation of the one before) over a
//! vocabulary of 100,000 tokens of about four bytes.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use prefix_picker::events::decode_batch;
use prefix_picker::events::frame::{Frame, parse};
use prefix_picker::index::{IndexConfig, PoolIndex};
use prefix_picker::vocab::Vocab;
use prefix_picker_core::blocks::PoolKey;
use prefix_picker_core::ids::{Epoch, ReplicaIndex};
use prefix_picker_core::table::{TableStore, encode_group};
use prefix_picker_tests::workload::Random;

use crate::frame;

const BLOCK_SIZE: u32 = 16;
const BLOCKS: u32 = 128;
const BATCHES: usize = 1_500;
const TOKENS: u32 = 100_000;

/// Prints rates and memory for content that one replica has, and that eight replicas share.
pub(crate) fn report() -> Result<()> {
    let mut random = Random::new(7);
    let vocab = Arc::new(Vocab::from_tokens(
        (0..TOKENS).map(|id| (id, word(&mut random))),
    )?);
    let frames = frames(&mut random)?;
    println!("control plane, one thread, engine blocks of {BLOCK_SIZE} tokens");
    for replicas in [1_u16, 8] {
        let config = IndexConfig {
            key: PoolKey::derive(b"bench", "bench"),
            profile_hash: 1,
            vocab: Arc::clone(&vocab),
            text: true,
            token_ids: false,
            full_reports: false,
            check_grown: false,
            untold_salts: false,
            eagle_drops_block: false,
            memory_budget_bytes: 8 << 30,
        };
        let mut index = PoolIndex::new(config);
        let start = Instant::now();
        let mut blocks = 0_u64;
        for frame in &frames {
            for replica in 0..replicas {
                let Frame::Batch { payload, .. } = parse(frame)? else {
                    continue;
                };
                let stats = index.apply(ReplicaIndex(replica), &decode_batch(payload)?);
                blocks += stats.stored;
            }
        }
        index.settle();
        let seconds = start.elapsed().as_secs_f64();
        let mut store = TableStore::new(Epoch(1), 4096);
        let table = Instant::now();
        index.drain_dirty(|anchor, spec| {
            let body = spec.and_then(|s| encode_group(&s).ok());
            match body {
                Some(body) => store.upsert(anchor, body),
                None => store.remove(anchor),
            };
        });
        let table = table.elapsed().as_secs_f64();
        let stats = index.stats();
        println!(
            "  {replicas} replica(s): frame -> index {:.2} M engine blocks/s; index -> table {:.2} M of our blocks/s; index {:.0} B per engine block held, table {:.1} B per block of ours",
            blocks as f64 / seconds / 1e6,
            stats.blocks as f64 / table / 1e6,
            stats.memory_bytes as f64 / stats.held.max(1) as f64,
            store.bytes() as f64 / stats.blocks.max(1) as f64,
        );
    }
    Ok(())
}

fn word(random: &mut Random) -> Vec<u8> {
    let letters = 1 + random.below(6);
    let space = std::iter::once(b' ').take(usize::from(!random.one_in(4)));
    space
        .chain((0..letters).map(|_| b'a' + random.below(26) as u8))
        .collect()
}

fn frames(random: &mut Random) -> Result<Vec<[Vec<u8>; 3]>> {
    let mut parent = None;
    (0..BATCHES)
        .map(|seq| {
            let from = parent.take_if(|_| random.one_in(2));
            let (payload, last) = stored(random, from)?;
            parent = Some(last);
            Ok([b"kv".to_vec(), (seq as u64).to_be_bytes().to_vec(), payload])
        })
        .collect()
}

/// A batch of one `BlockStored`, and its last block's hash.
fn stored(random: &mut Random, parent: Option<u64>) -> Result<(Vec<u8>, u64)> {
    let hashes: Vec<u64> = (0..BLOCKS).map(|_| random.bits() | 1 << 63).collect();
    let tokens: Vec<u32> = (0..BLOCKS * BLOCK_SIZE)
        .map(|_| random.below(TOKENS as usize) as u32)
        .collect();
    let last = hashes.last().copied().unwrap_or_default();
    Ok((frame::stored(&hashes, parent, &tokens, BLOCK_SIZE)?, last))
}
