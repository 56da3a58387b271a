//! Reading a group in place.

use super::super::wire::{Cursor, read_u16};
use super::{GroupError, GroupSpec, Holder, MAX_RUN, RunSpec, TOKEN_BIAS};
use crate::ids::{BlockHash, ReplicaIndex};

/// A group's bytes. Damage ends the runs early; it never panics.
#[derive(Clone, Copy, Debug)]
pub(in crate::table) struct GroupRef<'a> {
    pub(in crate::table) base_tokens: u32,
    /// 0: none.
    pub(in crate::table) split: u8,
    runs: Cursor<'a>,
}

/// A run's bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::table) struct RunRef<'a> {
    pub(in crate::table) start: u8,
    pub(in crate::table) len: u8,
    form: u8,
    /// Low halves of the hashes; those of the first run begin with its second block.
    hashes: &'a [[u8; 4]],
    tokens: &'a [u8],
    pub(in crate::table) holders: &'a [u8],
}

/// What a bucket of holders counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::table) enum Tier {
    /// GPU memory, and so any tier at least as much.
    Gpu,
    /// Any tier.
    Any,
}

impl<'a> GroupRef<'a> {
    pub(in crate::table) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor(body);
        let split = cursor.byte()?;
        let base_tokens = cursor.varint()?;
        (usize::from(split) < MAX_RUN).then_some(Self {
            base_tokens,
            split,
            runs: cursor,
        })
    }

    /// Follows `hashes`, whose first is this group's anchor, and shows each run on the way with the
    /// number of its blocks that are on it (at least 1). Returns how many blocks matched.
    pub(in crate::table) fn walk(
        &self,
        hashes: &[BlockHash],
        mut visit: impl FnMut(&RunRef<'a>, usize),
    ) -> usize {
        let mut cursor = self.runs;
        let mut depth = 0;
        while let Some(run) = RunRef::read(&mut cursor, depth == 0) {
            let start = usize::from(run.start);
            if start > depth {
                break;
            }
            let wanted = hashes.get(depth..).unwrap_or_default();
            if start < depth || wanted.is_empty() {
                continue;
            }
            let matched = run.matched(wanted);
            if matched == 0 {
                continue;
            }
            visit(&run, matched);
            depth += matched;
            if matched < usize::from(run.len) {
                break;
            }
        }
        depth
    }
}

impl<'a> RunRef<'a> {
    /// The next run. Only the first one of a group starts at 0.
    #[inline]
    fn read(cursor: &mut Cursor<'a>, first: bool) -> Option<Self> {
        let place = cursor.byte()?;
        let len = (cursor.byte()? & 0x1f) + 1;
        let (start, form) = (place & 0x1f, (place >> 5) & 3);
        if first != (start == 0) {
            return None;
        }
        let holders = cursor.varint()? as usize;
        let stored = usize::from(len) - usize::from(first);
        let hashes = cursor.take(4 * stored)?.as_chunks().0;
        let tokens = cursor.take(match form {
            0 => 1 + usize::from(len),
            1 => 2 * usize::from(len),
            2 => 4 * usize::from(len),
            _ => return None,
        })?;
        let holders = cursor.take(holders)?;
        Some(Self {
            start,
            len,
            form,
            hashes,
            tokens,
            holders,
        })
    }

    /// How many of the run's blocks `wanted` begins with.
    #[inline]
    fn matched(&self, wanted: &[BlockHash]) -> usize {
        // The page's directory has compared the anchor, all 8 bytes of it.
        let known = usize::from(self.start == 0);
        let wanted = wanted.get(known..).unwrap_or_default();
        known
            + self
                .hashes
                .iter()
                .zip(wanted)
                .take_while(|(held, wanted)| u32::from_le_bytes(**held) == wanted.0 as u32)
                .count()
    }

    /// Tokens of the whole prompt up to each block's end; `base` is the group's.
    pub(in crate::table) fn tokens(&self, base: u32) -> [u32; MAX_RUN] {
        let mut out = [0; MAX_RUN];
        let mut total = base.wrapping_add(u32::from(read_u16(self.tokens, 0)));
        let steps = self.tokens.get(2..).unwrap_or_default();
        let mut add = |step: u32| {
            total = total.wrapping_add(step).wrapping_sub(TOKEN_BIAS as u32);
            total
        };
        // The first block's "step" takes the bias back.
        let first = core::iter::once(TOKEN_BIAS as u32);
        match self.form {
            0 => {
                let steps = first.chain(steps.iter().map(|step| u32::from(*step)));
                out.iter_mut()
                    .zip(steps)
                    .for_each(|(slot, step)| *slot = add(step));
            }
            1 => {
                let steps = steps.as_chunks().0.iter();
                let steps = first.chain(steps.map(|step| u32::from(u16::from_le_bytes(*step))));
                out.iter_mut()
                    .zip(steps)
                    .for_each(|(slot, step)| *slot = add(step));
            }
            _ => {
                for (slot, tokens) in out.iter_mut().zip(self.tokens.as_chunks().0) {
                    *slot = u32::from_le_bytes(*tokens);
                }
            }
        }
        out
    }
}

/// Shows each replica of each bucket with the bucket's tier and blocks held. `None`: damaged.
#[inline]
pub(in crate::table) fn for_each_holder(
    holders: &[u8],
    mut visit: impl FnMut(Tier, u8, ReplicaIndex),
) -> Option<()> {
    let mut cursor = Cursor(holders);
    while !cursor.is_empty() {
        let tag = cursor.byte()?;
        let tier = if tag & 0x80 == 0 {
            Tier::Gpu
        } else {
            Tier::Any
        };
        let held = tag & 0x7f;
        let head = cursor.varint()?;
        if head & 1 == 0 {
            let mut next = 0u32;
            for _ in 0..head >> 1 {
                let replica = u16::try_from(next.checked_add(cursor.varint()?)?).ok()?;
                visit(tier, held, ReplicaIndex(replica));
                next = u32::from(replica) + 1;
            }
        } else {
            let first_byte = cursor.varint()?;
            let bytes = cursor.take((head >> 1) as usize)?;
            if u64::from(first_byte) + bytes.len() as u64 > 8192 {
                return None;
            }
            for (at, byte) in bytes.iter().enumerate() {
                let mut bits = *byte;
                while bits != 0 {
                    let replica = (first_byte as usize + at) * 8 + bits.trailing_zeros() as usize;
                    visit(tier, held, ReplicaIndex(replica as u16));
                    bits &= bits - 1;
                }
            }
        }
    }
    Some(())
}

/// What [`encode_group`](super::encode_group) wrote, for tools and tests: runs and holders in
/// written order, and of all hashes but the anchor's only the low half.
///
/// # Errors
/// [`GroupError`], by the rules that the encoder keeps.
pub fn decode_group(anchor: BlockHash, body: &[u8]) -> Result<GroupSpec, GroupError> {
    let group = GroupRef::parse(body).ok_or(GroupError::Damaged)?;
    let mut runs: Vec<RunSpec> = Vec::new();
    let mut cursor = group.runs;
    while !cursor.is_empty() {
        let first = runs.is_empty();
        let run = RunRef::read(&mut cursor, first).ok_or(GroupError::Damaged)?;
        let mut hashes: Vec<BlockHash> = first.then_some(anchor).into_iter().collect();
        hashes.extend(
            run.hashes
                .iter()
                .map(|low| BlockHash(u32::from_le_bytes(*low).into())),
        );
        let mut tokens = run.tokens(group.base_tokens).to_vec();
        tokens.truncate(hashes.len());
        let mut holders = Vec::new();
        for_each_holder(run.holders, |tier, held, replica| {
            holders.push((replica, tier, held));
        })
        .ok_or(GroupError::Damaged)?;
        holders.sort_unstable_by_key(|(replica, tier, _)| (*replica, *tier == Tier::Any));
        let holders = holders
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|of_one| match *of_one {
                [(replica, Tier::Gpu, gpu)] => Some(Holder {
                    replica,
                    gpu,
                    any: gpu,
                }),
                [(replica, Tier::Any, any)] => Some(Holder {
                    replica,
                    gpu: 0,
                    any,
                }),
                [(replica, Tier::Gpu, gpu), (_, Tier::Any, any)] => {
                    Some(Holder { replica, gpu, any })
                }
                _ => None,
            })
            .collect();
        runs.push(RunSpec {
            start: run.start,
            hashes,
            tokens,
            holders,
        });
    }
    let split = (group.split > 0).then_some(group.split);
    let spec = GroupSpec {
        base_tokens: group.base_tokens,
        split,
        runs,
    };
    // The same rules as for writing.
    super::encode_group(&spec)?;
    Ok(spec)
}
