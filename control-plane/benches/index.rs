//! How many engine blocks a second one core brings from payload to index, and what they cost in
//! memory: `cargo bench -p prefix-picker --bench index [-- BLOCKS]`.
//!
//! Prompts of 100,000 tokens at block size 16 come in prefills of 128 blocks, with token ids spread as
//! text spreads them over a vocabulary of 128,000; first to one replica, then to three more, and then
//! the first evicts. Rates are per second of this thread's own time where the system tells it (Linux),
//! with the decoder and without.

use std::sync::Arc;
use std::time::Instant;

use prefix_picker::events::decode_batch;
use prefix_picker::index::{IndexConfig, PoolIndex};
use prefix_picker::vocab::Vocab;
use prefix_picker_core::blocks::PoolKey;
use prefix_picker_core::ids::ReplicaIndex;
use rmp::encode::{write_array_len, write_f64, write_map_len, write_nil, write_str, write_uint};

type Failure = Box<dyn std::error::Error>;
type Payloads = Vec<Vec<u8>>;

const BLOCK_SIZE: u32 = 16;
const PREFILL_BLOCKS: usize = 128;
const PROMPT_BLOCKS: usize = 6_250;
const VOCABULARY: u32 = 128_000;

/// A cheap stream of numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Small ids are frequent, as in text.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    fn token(&mut self) -> u64 {
        let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        f64::from(VOCABULARY).powf(uniform) as u64
    }
}

/// Tokens of 2 to 8 bytes, half of them with a space in front.
fn vocabulary() -> Result<Vocab, Failure> {
    let mut numbers = Numbers(3);
    let tokens = (0..=VOCABULARY).map(|id| {
        let mut bytes = if id % 2 == 0 {
            b" ".to_vec()
        } else {
            Vec::new()
        };
        for _ in 0..2 + numbers.next() % 6 {
            bytes.push(
                *b"abcdefghijklmnopqrstuvwxyz012345"
                    .get(numbers.next() as usize % 32)
                    .unwrap_or(&b'x'),
            );
        }
        (id, bytes)
    });
    Ok(Vocab::from_tokens(tokens.collect::<Vec<_>>())?)
}

fn stored(hashes: &[u64], parent: Option<u64>, content: &mut Numbers) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    let blocks = u32::try_from(hashes.len())?;
    write_array_len(&mut out, 3)?;
    write_f64(&mut out, 1_795_976_522.15)?;
    write_array_len(&mut out, 1)?;
    write_map_len(&mut out, 7)?;
    write_str(&mut out, "type")?;
    write_str(&mut out, "BlockStored")?;
    write_str(&mut out, "block_hashes")?;
    write_array_len(&mut out, blocks)?;
    for hash in hashes {
        write_uint(&mut out, *hash)?;
    }
    write_str(&mut out, "parent_block_hash")?;
    match parent {
        Some(parent) => drop(write_uint(&mut out, parent)?),
        None => write_nil(&mut out)?,
    }
    write_str(&mut out, "token_ids")?;
    write_array_len(&mut out, blocks * BLOCK_SIZE)?;
    for _ in 0..blocks * BLOCK_SIZE {
        write_uint(&mut out, content.token())?;
    }
    write_str(&mut out, "block_size")?;
    write_uint(&mut out, u64::from(BLOCK_SIZE))?;
    write_str(&mut out, "medium")?;
    write_str(&mut out, "GPU")?;
    write_str(&mut out, "extra_keys")?;
    write_array_len(&mut out, blocks)?;
    for _ in 0..blocks {
        write_nil(&mut out)?;
    }
    write_uint(&mut out, 0)?;
    Ok(out)
}

fn removed(hashes: &[u64]) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    write_array_len(&mut out, 3)?;
    write_f64(&mut out, 1_795_976_522.15)?;
    write_array_len(&mut out, u32::try_from(hashes.len())?)?;
    for hash in hashes.iter().rev() {
        write_map_len(&mut out, 3)?;
        write_str(&mut out, "type")?;
        write_str(&mut out, "BlockRemoved")?;
        write_str(&mut out, "block_hashes")?;
        write_array_len(&mut out, 1)?;
        write_uint(&mut out, *hash)?;
        write_str(&mut out, "medium")?;
        write_str(&mut out, "GPU")?;
    }
    write_uint(&mut out, 0)?;
    Ok(out)
}

/// Payloads that store `total` blocks of prompts that are the same for every replica, and those that
/// remove them again.
fn payloads(replica: u16, total: usize) -> Result<(Payloads, Payloads), Failure> {
    let (mut names, mut content) = (Numbers(1_000 + u64::from(replica)), Numbers(2));
    let (mut stores, mut removes) = (Vec::new(), Vec::new());
    for prompt in 0..total.div_ceil(PROMPT_BLOCKS) {
        let mut parent = None;
        let mut left = PROMPT_BLOCKS.min(total - prompt * PROMPT_BLOCKS);
        while left > 0 {
            let hashes: Vec<u64> = (0..PREFILL_BLOCKS.min(left))
                .map(|_| names.next())
                .collect();
            stores.push(stored(&hashes, parent, &mut content)?);
            removes.push(removed(&hashes)?);
            parent = hashes.last().copied();
            left -= hashes.len();
        }
    }
    removes.reverse();
    Ok((stores, removes))
}

/// Seconds that this thread has run; else by the clock.
fn seconds(started: Instant) -> f64 {
    let own = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = own.and_then(|own| own.split(' ').next()?.parse::<f64>().ok());
    ns.map_or_else(|| started.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

struct Bench {
    index: PoolIndex,
    total: usize,
    started: Instant,
}

impl Bench {
    #[allow(clippy::cast_precision_loss)]
    fn run(&mut self, name: &str, replica: u16, payloads: &[Vec<u8>]) {
        let start = seconds(self.started);
        let mut index_only = 0.0;
        for payload in payloads {
            let batch = decode_batch(payload).unwrap_or_default();
            let decoded = Instant::now();
            self.index.apply(ReplicaIndex(replica), &batch);
            index_only += decoded.elapsed().as_secs_f64();
        }
        let whole = seconds(self.started) - start;
        let stats = self.index.stats();
        let (mut groups, draining) = (0, Instant::now());
        self.index.drain_dirty(|_, _| groups += 1);
        let draining = draining.elapsed().as_secs_f64();
        println!(
            "{name:<34} {:>5.2} M engine blocks/s, index alone {:>5.2} (by the clock); {:>5.1} B a held block; {groups} groups in {draining:.3} s",
            self.total as f64 / whole / 1e6,
            self.total as f64 / index_only / 1e6,
            stats.memory_bytes as f64 / stats.held.max(1) as f64,
        );
    }
}

fn main() -> Result<(), Failure> {
    // Cargo itself passes `--bench`.
    let total = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(1_000_000);
    let index = PoolIndex::new(IndexConfig {
        key: PoolKey::derive(b"bench", "pool"),
        profile_hash: 1,
        vocab: Arc::new(vocabulary()?),
        text: true,
        token_ids: false,
        full_reports: false,
        check_grown: false,
        untold_salts: false,
        eagle_drops_block: false,
        memory_budget_bytes: usize::MAX,
    });
    let mut bench = Bench {
        index,
        total,
        started: Instant::now(),
    };
    let (stores, removes) = payloads(0, total)?;
    bench.run("store, new content", 0, &stores);
    for replica in 1..4 {
        bench.run(
            "store, content of another replica",
            replica,
            &payloads(replica, total)?.0,
        );
    }
    bench.run("evictions, one block an event", 0, &removes);
    Ok(())
}
