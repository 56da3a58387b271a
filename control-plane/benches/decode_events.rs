//! How many engine blocks a second one core decodes: `cargo bench -p prefix-picker --bench decode_events`.
//!
//! Payloads as vLLM sends them at block size 16, with token ids spread as text spreads them over a
//! vocabulary of 152,000: prefills of 64 blocks in maps and in arrays, blocks that decoding fills one
//! by one, evictions one by one, and hashes as bytes. Rates are per second of this thread's own time
//! where the system tells it (Linux), so that other work on the machine counts less.

use std::hint::black_box;
use std::time::Instant;

use prefix_picker::events::{KvEvent, decode_batch};
use rmp::encode::{
    write_array_len, write_bin, write_f64, write_map_len, write_nil, write_str, write_uint,
};

const BLOCK_SIZE: u32 = 16;

/// A cheap stream of numbers (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Small ids are frequent, as in text: 152,000 ^ uniform.
    fn token(&mut self) -> u64 {
        #[allow(clippy::cast_precision_loss)]
        let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let token = 152_000_f64.powf(uniform) as u64;
        token
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Map,
    Array,
    MapBytes,
}

type Encoded = Result<Vec<u8>, Box<dyn std::error::Error>>;

fn hash(
    out: &mut Vec<u8>,
    numbers: &mut Numbers,
    form: Form,
) -> Result<(), Box<dyn std::error::Error>> {
    if form == Form::MapBytes {
        let digest: Vec<u8> = (0..4).flat_map(|_| numbers.next().to_be_bytes()).collect();
        write_bin(out, &digest)?;
    } else {
        write_uint(out, numbers.next() | 1 << 63)?;
    }
    Ok(())
}

/// One batch of one `BlockStored`.
fn stored(numbers: &mut Numbers, blocks: u32, form: Form) -> Encoded {
    let mut out = Vec::new();
    let map = form != Form::Array;
    write_array_len(&mut out, 3)?;
    write_f64(&mut out, 1_795_976_522.15)?;
    write_array_len(&mut out, 1)?;
    if map {
        write_map_len(&mut out, 11)?;
        write_str(&mut out, "type")?;
    } else {
        write_array_len(&mut out, 11)?;
    }
    write_str(&mut out, "BlockStored")?;
    let key = |out: &mut Vec<u8>, name: &str| if map { write_str(out, name) } else { Ok(()) };
    key(&mut out, "block_hashes")?;
    write_array_len(&mut out, blocks)?;
    for _ in 0..blocks {
        hash(&mut out, numbers, form)?;
    }
    key(&mut out, "parent_block_hash")?;
    hash(&mut out, numbers, form)?;
    key(&mut out, "token_ids")?;
    write_array_len(&mut out, blocks * BLOCK_SIZE)?;
    for _ in 0..blocks * BLOCK_SIZE {
        write_uint(&mut out, numbers.token())?;
    }
    key(&mut out, "block_size")?;
    write_uint(&mut out, u64::from(BLOCK_SIZE))?;
    key(&mut out, "lora_id")?;
    write_nil(&mut out)?;
    key(&mut out, "medium")?;
    write_str(&mut out, "GPU")?;
    key(&mut out, "lora_name")?;
    write_nil(&mut out)?;
    key(&mut out, "extra_keys")?;
    write_array_len(&mut out, blocks)?;
    for _ in 0..blocks {
        write_nil(&mut out)?;
    }
    key(&mut out, "group_idx")?;
    write_uint(&mut out, 0)?;
    key(&mut out, "kv_cache_spec_kind")?;
    write_str(&mut out, "full_attention")?;
    write_uint(&mut out, 0)?;
    Ok(out)
}

/// One batch of single-hash `BlockRemoved`, as evictions come.
fn removed(numbers: &mut Numbers, blocks: u32) -> Encoded {
    let mut out = Vec::new();
    write_array_len(&mut out, 3)?;
    write_f64(&mut out, 1_795_976_522.15)?;
    write_array_len(&mut out, blocks)?;
    for _ in 0..blocks {
        write_map_len(&mut out, 4)?;
        write_str(&mut out, "type")?;
        write_str(&mut out, "BlockRemoved")?;
        write_str(&mut out, "block_hashes")?;
        write_array_len(&mut out, 1)?;
        hash(&mut out, numbers, Form::Map)?;
        write_str(&mut out, "medium")?;
        write_str(&mut out, "GPU")?;
        write_str(&mut out, "group_idx")?;
        write_uint(&mut out, 0)?;
    }
    write_uint(&mut out, 0)?;
    Ok(out)
}

/// Seconds that this thread has run; `None` where `/proc` does not tell.
fn own_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns: f64 = stat.split(' ').next()?.parse().ok()?;
    Some(ns / 1e9)
}

/// Decodes these payloads until half a second has passed, three times; prints the best rate.
fn measure(name: &str, payloads: &[Vec<u8>]) {
    let mut best = 0.0_f64;
    let mut mb_per_s = 0.0;
    let bytes: usize = payloads.iter().map(Vec::len).sum();
    for _ in 0..3 {
        let start = Instant::now();
        let own_start = own_seconds();
        let (mut blocks, mut rounds) = (0_usize, 0_usize);
        while start.elapsed().as_millis() < 500 {
            for payload in payloads {
                let batch = decode_batch(black_box(payload)).unwrap_or_default();
                assert!(batch.problems.is_empty() && batch.notes.is_empty());
                blocks += batch
                    .events
                    .iter()
                    .map(|event| match event {
                        KvEvent::Stored(stored) => stored.hashes.len(),
                        KvEvent::Removed(removed) => removed.hashes.len(),
                        KvEvent::Cleared => 0,
                    })
                    .sum::<usize>();
                black_box(batch);
            }
            rounds += 1;
        }
        let own = own_seconds().zip(own_start).map(|(end, start)| end - start);
        let seconds = own.unwrap_or_else(|| start.elapsed().as_secs_f64());
        #[allow(clippy::cast_precision_loss)]
        let rate = blocks as f64 / seconds / 1e6;
        if rate > best {
            best = rate;
            #[allow(clippy::cast_precision_loss)]
            let rate = (rounds * bytes) as f64 / seconds / 1e6;
            mb_per_s = rate;
        }
    }
    println!("{name:<40} {best:>7.2} M engine blocks/s {mb_per_s:>8.0} MB/s");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = Numbers(1);
    let mut many = |blocks: u32, form: Form| -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
        (0..256)
            .map(|_| stored(&mut numbers, blocks, form))
            .collect()
    };
    measure("prefill of 64 blocks, map", &many(64, Form::Map)?);
    measure("prefill of 64 blocks, array", &many(64, Form::Array)?);
    measure(
        "prefill of 64 blocks, map, byte hashes",
        &many(64, Form::MapBytes)?,
    );
    measure("decode, one block an event, map", &many(1, Form::Map)?);
    let mut numbers = Numbers(2);
    let evictions = (0..64)
        .map(|_| removed(&mut numbers, 64))
        .collect::<Result<Vec<_>, _>>()?;
    measure("evictions, one block an event, map", &evictions);
    Ok(())
}
