//! Reads a snapshot. Nothing is believed before the checksum at its end has been seen to be right, and
//! nothing is allocated because a number says so.

use super::super::PoolIndex;
use super::super::StreamPosition;
use super::super::adapters::Adapter;
use super::super::arena::NIL;
use super::super::blocks::NewBlock;
use super::super::checkpoints::Checkpoints;
use super::super::held::Copies;
use super::super::holdings::EMPTY;
use super::super::kv_groups::KvGroups;
use super::super::limits::Limit;
use super::super::nodes::{HELD, IDS, LORA, MAX_TOKENS, Node, OPAQUE, ROOT, SPOILT, TEXT};
use super::super::replica::Replica;
use super::{MAGIC, NONE, SnapshotError, SnapshotLoaded, VERSION, fingerprint};
use prefix_picker_core::blocks::IdChain;
use prefix_picker_core::ids::{BlockHash, ReplicaIndex};
use sha2::{Digest, Sha256};
use std::io::Read;

type Result<T> = std::result::Result<T, SnapshotError>;

const NAME_BYTES_MAX: u32 = 1 << 12;
const GROUPS_MAX: u32 = 1 << 10;
const BUFFER_BYTES: usize = 1 << 16;

/// Hashes bytes on their way in.
pub(super) struct Reader<'a, R: Read> {
    input: &'a mut R,
    hash: Sha256,
    buffer: Vec<u8>,
    at: usize,
}

impl<'a, R: Read> Reader<'a, R> {
    pub(super) fn new(input: &'a mut R) -> Self {
        Self {
            input,
            hash: Sha256::new(),
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// Makes `wanted` bytes available in the buffer.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        while self.buffer.len() < wanted {
            let had = self.buffer.len();
            self.buffer.resize(had + BUFFER_BYTES, 0);
            let read = self
                .input
                .read(self.buffer.get_mut(had..).unwrap_or_default());
            self.buffer.truncate(had + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Err(SnapshotError::Damaged("it ends early"));
            }
        }
        Ok(())
    }

    fn take_unhashed<const N: usize>(&mut self) -> Result<[u8; N]> {
        if self.buffer.len() - self.at < N {
            self.fill(N)?;
        }
        let bytes = self
            .buffer
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>())
            .copied();
        self.at += N;
        bytes.ok_or(SnapshotError::Damaged("it ends early"))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take_unhashed()?;
        self.hash.update(bytes);
        Ok(bytes)
    }

    fn take_u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    fn take_u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn take_u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn take_u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn take_flag(&mut self) -> Result<bool> {
        Ok(self.take_u8()? != 0)
    }

    pub(super) fn read(
        mut self,
        index: &mut PoolIndex,
        mut replica_of: impl FnMut(&str) -> Option<ReplicaIndex>,
    ) -> Result<SnapshotLoaded> {
        if self.take::<8>()? != MAGIC || self.take_u32()? != VERSION {
            return Err(SnapshotError::Version);
        }
        if self.take::<32>()? != fingerprint(&index.config) {
            return Err(SnapshotError::OtherPool);
        }
        index.clock = self.take_u32()?;
        let nodes = self.read_nodes(index)?;
        let mut loaded = SnapshotLoaded {
            nodes: nodes.len(),
            ..SnapshotLoaded::default()
        };
        for _ in 0..self.take_u32()? {
            let name = self.read_name()?;
            let found = replica_of(&name);
            match found {
                Some(_) => loaded.replicas += 1,
                None => loaded.unknown_replicas += 1,
            }
            self.read_replica(index, found, &nodes)?;
        }
        let hash: [u8; 32] = self.hash.clone().finalize().into();
        if self.take_unhashed::<32>()? != hash {
            return Err(SnapshotError::Damaged("its checksum is wrong"));
        }
        credit_all(index, &nodes);
        Ok(loaded)
    }

    fn read_nodes(&mut self, index: &mut PoolIndex) -> Result<Vec<u32>> {
        let mut nodes: Vec<u32> = Vec::new();
        for _ in 0..self.take_u32()? {
            let node = self.read_node(index, &nodes)?;
            nodes.push(node);
        }
        Ok(nodes)
    }

    fn read_node(&mut self, index: &mut PoolIndex, before: &[u32]) -> Result<u32> {
        let (parent, key) = (self.take_u32()?, self.take_u64()?);
        let (tokens, flags, used) = (self.take_u32()?, self.take_u32()?, self.take_u32()?);
        let parent = match before.get(parent as usize) {
            Some(parent) => *parent,
            None if parent == NONE && flags & ROOT != 0 => NIL,
            None => return Err(SnapshotError::Damaged("a block's parent comes after it")),
        };
        if tokens > MAX_TOKENS || flags & !(OPAQUE | ROOT | LORA | IDS | TEXT | HELD | SPOILT) != 0
        {
            return Err(SnapshotError::Damaged(
                "a block has impossible tokens or flags",
            ));
        }
        if (parent == NIL) != (flags & ROOT != 0) || index.nodes.find_child(parent, key).is_some() {
            return Err(SnapshotError::Damaged(
                "a block is not where a block can be",
            ));
        }
        let holding = index.holdings.empty();
        let mut node = Node::new(
            key,
            parent,
            tokens,
            flags & !IDS,
            holding,
            used.min(index.clock),
        );
        node.text = self.take()?;
        let node = index
            .nodes
            .insert(node)
            .ok_or(SnapshotError::Damaged("too many blocks"))?;
        if flags & ROOT != 0 && flags & LORA != 0 {
            index.adapters.set(node, Adapter(self.take_u64()?));
        }
        if flags & IDS != 0 {
            let chain = IdChain::from_bytes(&self.take()?);
            index.set_id_chain(node, chain);
        }
        for _ in 0..self.take_u32()? {
            let (hash, tokens) = (BlockHash(self.take_u64()?), self.take_u32()?);
            let ids = self.take_flag()?;
            let parent = index.last_block(node, ids);
            let owns = index.nodes.get(node).owns;
            let owned = index
                .blocks
                .own(node, owns, parent, NewBlock { hash, tokens, ids });
            index.nodes.get_mut(node).owns =
                owned.ok_or(SnapshotError::Damaged("too many blocks"))?.1;
        }
        Ok(node)
    }

    fn read_name(&mut self) -> Result<String> {
        let length = self.take_u32()?;
        if length > NAME_BYTES_MAX {
            return Err(SnapshotError::Damaged("a replica's name is too long"));
        }
        let mut name = Vec::new();
        for _ in 0..length {
            name.push(self.take_u8()?);
        }
        String::from_utf8(name).map_err(|_| SnapshotError::Damaged("a replica's name is not UTF-8"))
    }

    fn read_groups(&mut self) -> Result<KvGroups> {
        let mut groups = KvGroups::default();
        let has_main = self.take_flag()?;
        let main = self.read_group()?;
        groups.main = has_main.then_some(main);
        let count = self.take_u32()?;
        if count > GROUPS_MAX {
            return Err(SnapshotError::Damaged("a replica has too many groups"));
        }
        for _ in 0..count {
            let group = self.read_group()?;
            groups.seen.push((group, self.take_flag()?));
        }
        Ok(groups)
    }

    fn read_checkpoints(&mut self) -> Result<Checkpoints> {
        let impossible = SnapshotError::Damaged("a replica has saved states in an impossible way");
        let mut found = Checkpoints::default();
        for _ in 0..self.take_u32()? {
            let group = self.take_u32()?;
            if found.restore_group(group).is_none() {
                return Err(impossible);
            }
        }
        for _ in 0..self.take_u32()? {
            let (group, hash) = (self.take_u32()?, self.take_u64()?);
            let copies = self.take_u16()?;
            if found.restore(group, hash, copies).is_none() {
                return Err(impossible);
            }
        }
        Ok(found)
    }

    fn read_group(&mut self) -> Result<Option<u32>> {
        let (is_some, group) = (self.take_flag()?, self.take_u32()?);
        Ok(is_some.then_some(group))
    }

    fn read_replica(
        &mut self,
        index: &mut PoolIndex,
        replica: Option<ReplicaIndex>,
        nodes: &[u32],
    ) -> Result<()> {
        let position = if self.take_flag()? {
            Some(StreamPosition {
                sequence: self.take_u64()?,
                digest: self.take()?,
            })
        } else {
            None
        };
        let groups = self.read_groups()?;
        let mut of = Box::<Replica>::default();
        (of.position, of.groups) = (position, groups);
        let chunk_tokens = self.take_u32()?;
        of.checkpoints = self.read_checkpoints()?;
        if let Some(replica) = replica {
            let limit = Limit {
                checkpoints: !of.checkpoints.groups().is_empty(),
                chunk_tokens,
            };
            if limit != Limit::NONE {
                *index.limit_mut(replica) = limit;
            }
        }
        for _ in 0..self.take_u32()? {
            let (hash, ordinal) = (self.take_u64()?, self.take_u32()?);
            let copies = Copies {
                gpu: self.take_u16()?,
                lower: self.take_u16()?,
            };
            let node = *nodes
                .get(ordinal as usize)
                .ok_or(SnapshotError::Damaged("a replica holds an unknown block"))?;
            if copies.is_none() || index.nodes.get(node).is(ROOT) || of.held.node(hash).is_some() {
                return Err(SnapshotError::Damaged(
                    "a replica holds a block in an impossible way",
                ));
            }
            if let Some(replica) = replica {
                index.set_copies(replica, &mut of, hash, node, Copies::default(), copies);
            }
        }
        // Credit is given once, from the roots down.
        index.queue = Vec::new();
        if let Some(replica) = replica {
            index.put_replica(replica, of);
        }
        Ok(())
    }
}

/// Computes all credit, parents first, and frees what nobody holds any more.
fn credit_all(index: &mut PoolIndex, nodes: &[u32]) {
    for node in nodes {
        let members: Vec<ReplicaIndex> = index
            .holdings
            .members(index.nodes.get(*node).holding)
            .map(|(replica, _)| replica)
            .collect();
        for replica in members {
            index.refresh(*node, replica);
        }
        if index.nodes.get(*node).holding == EMPTY {
            index.loose.push(*node);
        }
    }
    index.queue = Vec::new();
    index.reap();
}
