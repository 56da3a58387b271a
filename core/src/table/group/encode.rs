//! Writing a group.
//!
//! | bytes | |
//! |---|---|
//! | 1 | split, 0 if there is none (upper three bits 0) |
//! | varint | tokens before the anchor |
//! | | runs to the body's end, by ascending start, then first hash |
//!
//! A run:
//!
//! | bytes | |
//! |---|---|
//! | 1 | start (low five bits), token form (next two), 0 |
//! | 1 | length - 1 (low five bits), 0 |
//! | varint | bytes of the holders |
//! | 4 each | low halves of the hashes; the first run leaves out the anchor's |
//! | | tokens, by form: 0: first - base in 2 bytes, then a byte a block: more than the last + 4; 1: the same in 2 bytes a block; 2: 4 bytes a block, absolute |
//! | | holders: buckets to the end |
//!
//! A bucket: one byte (blocks held, `1..=32`; high bit 0: GPU, and any tier at least as much; 1: any
//! tier), then the set of replicas. A set: a varint whose low bit tells its form; 0: the rest is a
//! count, then a varint for the first replica and for each further one its distance to the last,
//! less 1; 1: the rest is a number of bytes, then a varint, how many zero bytes are left out before
//! them, then the bytes of a bitset, lowest bit first.

use super::super::wire::put_varint;
use super::{GroupError, GroupSpec, Holder, MAX_RUN, RunSpec, TOKEN_BIAS};
use crate::ids::ReplicaIndex;

/// The group as bytes. Equal groups give equal bytes, in whatever order runs and holders come.
///
/// # Errors
/// [`GroupError`], by the rules at the fields of [`GroupSpec`], [`RunSpec`] and [`Holder`].
pub fn encode_group(spec: &GroupSpec) -> Result<Vec<u8>, GroupError> {
    let order = checked_order(spec)?;
    let blocks: usize = spec.runs.iter().map(|run| run.hashes.len()).sum();
    let mut out = Vec::with_capacity(8 + 6 * blocks + 8 * spec.runs.len());
    out.push(spec.split.unwrap_or(0));
    put_varint(&mut out, spec.base_tokens);
    let mut scratch = Scratch::default();
    for (at, run) in order.into_iter().enumerate() {
        let (form, tokens) = encode_tokens(run, spec.base_tokens);
        scratch.holders.clear();
        encode_holders(&run.holders, &mut scratch);
        out.push(run.start | (form << 5));
        out.push((run.hashes.len() - 1) as u8);
        put_varint(&mut out, scratch.holders.len() as u32);
        for hash in run.hashes.iter().skip(usize::from(at == 0)) {
            out.extend_from_slice(&(hash.0 as u32).to_le_bytes());
        }
        out.extend_from_slice(&tokens);
        out.extend_from_slice(&scratch.holders);
    }
    Ok(out)
}

/// The runs in the order in which they are written, if the group is well formed.
fn checked_order(spec: &GroupSpec) -> Result<Vec<&RunSpec>, GroupError> {
    if spec
        .split
        .is_some_and(|split| split == 0 || usize::from(split) >= MAX_RUN)
    {
        return Err(GroupError::Split);
    }
    let limit = spec.split.map_or(MAX_RUN, usize::from);
    let mut ends = 0u64;
    for (at, run) in spec.runs.iter().enumerate() {
        let len = run.hashes.len();
        let end = usize::from(run.start) + len;
        if len == 0 {
            return Err(GroupError::Empty);
        }
        if run.tokens.len() != len {
            return Err(GroupError::TokenCount(at));
        }
        if end > limit || (at == 0) != (run.start == 0) {
            return Err(GroupError::Place(at));
        }
        ends |= 1 << end;
        let fits = |holder: &Holder| {
            holder.gpu <= holder.any && holder.any >= 1 && usize::from(holder.any) <= len
        };
        if !run.holders.iter().all(fits) {
            return Err(GroupError::Holder(at));
        }
        let mut replicas: Vec<ReplicaIndex> = run.holders.iter().map(|h| h.replica).collect();
        replicas.sort_unstable();
        if !replicas.is_sorted_by(|a, b| a < b) {
            return Err(GroupError::Holder(at));
        }
    }
    for (at, run) in spec.runs.iter().enumerate().skip(1) {
        if ends & (1 << run.start) == 0 {
            return Err(GroupError::Place(at));
        }
    }
    if spec.runs.is_empty() {
        return Err(GroupError::Empty);
    }
    let mut order: Vec<&RunSpec> = spec.runs.iter().collect();
    order.sort_by_key(|run| (run.start, run.hashes.first().map(|hash| hash.0 as u32)));
    Ok(order)
}

fn encode_tokens(run: &RunSpec, base: u32) -> (u8, Vec<u8>) {
    let first = run
        .tokens
        .first()
        .map_or(0, |first| i64::from(*first) - i64::from(base));
    let mut steps = Vec::with_capacity(MAX_RUN);
    for pair in run.tokens.windows(2) {
        if let [last, next] = pair {
            steps.push(i64::from(*next) - i64::from(*last) + TOKEN_BIAS);
        }
    }
    let mut out = Vec::with_capacity(2 + run.tokens.len());
    let fits = |limit: i64| steps.iter().all(|step| (0..=limit).contains(step));
    if !(0..=i64::from(u16::MAX)).contains(&first) || !fits(i64::from(u16::MAX)) {
        for tokens in &run.tokens {
            out.extend_from_slice(&tokens.to_le_bytes());
        }
        return (2, out);
    }
    out.extend_from_slice(&(first as u16).to_le_bytes());
    if fits(i64::from(u8::MAX)) {
        out.extend(steps.iter().map(|step| *step as u8));
        (0, out)
    } else {
        for step in &steps {
            out.extend_from_slice(&(*step as u16).to_le_bytes());
        }
        (1, out)
    }
}

#[derive(Default)]
struct Scratch {
    holders: Vec<u8>,
    /// Bucket byte and replica.
    entries: Vec<(u8, ReplicaIndex)>,
}

fn encode_holders(holders: &[Holder], scratch: &mut Scratch) {
    let entries = &mut scratch.entries;
    entries.clear();
    for holder in holders {
        if holder.gpu > 0 {
            entries.push((holder.gpu, holder.replica));
        }
        if holder.any > holder.gpu {
            entries.push((holder.any | 0x80, holder.replica));
        }
    }
    entries.sort_unstable();
    for bucket in entries.chunk_by(|a, b| a.0 == b.0) {
        if let Some((tag, _)) = bucket.first() {
            scratch.holders.push(*tag);
            encode_set(bucket, &mut scratch.holders);
        }
    }
}

/// The replicas of a bucket, ascending, in whichever form is shorter.
fn encode_set(bucket: &[(u8, ReplicaIndex)], out: &mut Vec<u8>) {
    let start = out.len();
    put_varint(out, (bucket.len() as u32) << 1);
    let mut next = 0;
    for (_, replica) in bucket {
        put_varint(out, u32::from(replica.0) - next);
        next = u32::from(replica.0) + 1;
    }
    let (Some((_, first)), Some((_, last))) = (bucket.first(), bucket.last()) else {
        return;
    };
    let first_byte = first.0 / 8;
    let bytes = usize::from(last.0 / 8 - first_byte) + 1;
    if bytes + 2 >= out.len() - start {
        return;
    }
    out.truncate(start);
    put_varint(out, (bytes as u32) << 1 | 1);
    put_varint(out, u32::from(first_byte));
    let bits_at = out.len();
    out.resize(bits_at + bytes, 0);
    for (_, replica) in bucket {
        if let Some(byte) = out.get_mut(bits_at + usize::from(replica.0 / 8 - first_byte)) {
            *byte |= 1 << (replica.0 % 8);
        }
    }
}
