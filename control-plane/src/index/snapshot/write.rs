//! Writes a snapshot.

use super::super::PoolIndex;
use super::super::arena::NIL;
use super::super::nodes::{IDS, LORA, ROOT};
use super::super::replica::Replica;
use super::{MAGIC, NONE, VERSION, fingerprint};
use prefix_picker_core::ids::ReplicaIndex;
use sha2::{Digest, Sha256};
use std::io::{Result, Write};

/// Gathers bytes and hashes them on their way out.
pub(super) struct Writer<'a, W: Write> {
    out: &'a mut W,
    hash: Sha256,
    buffer: Vec<u8>,
}

const BUFFER_BYTES: usize = 1 << 16;

impl<'a, W: Write> Writer<'a, W> {
    pub(super) fn new(out: &'a mut W) -> Self {
        Self {
            out,
            hash: Sha256::new(),
            buffer: Vec::with_capacity(BUFFER_BYTES),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.hash.update(&self.buffer);
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn put_u32(&mut self, value: u32) -> Result<()> {
        self.put(&value.to_le_bytes())
    }

    fn put_u64(&mut self, value: u64) -> Result<()> {
        self.put(&value.to_le_bytes())
    }

    fn put_count(&mut self, value: usize) -> Result<()> {
        self.put_u32(u32::try_from(value).unwrap_or(u32::MAX))
    }

    pub(super) fn write(
        mut self,
        index: &PoolIndex,
        name_of: &dyn Fn(ReplicaIndex) -> Option<String>,
    ) -> Result<()> {
        self.put(&MAGIC)?;
        self.put_u32(VERSION)?;
        self.put(&fingerprint(&index.config))?;
        self.put_u32(index.clock)?;
        let ordinals = self.write_nodes(index)?;
        let named: Vec<(String, &Replica, u32)> = index
            .replicas
            .iter()
            .enumerate()
            .filter_map(|(number, replica)| {
                let number = ReplicaIndex(u16::try_from(number).ok()?);
                let chunk_tokens = index.limit(number).chunk_tokens;
                Some((name_of(number)?, replica.as_deref()?, chunk_tokens))
            })
            .collect();
        self.put_count(named.len())?;
        for (name, replica, chunk_tokens) in named {
            self.write_replica(&name, replica, chunk_tokens, &ordinals)?;
        }
        self.flush()?;
        let hash: [u8; 32] = self.hash.finalize().into();
        self.out.write_all(&hash)?;
        self.out.flush()
    }

    /// Parents before children. Returns each node's place in this order.
    fn write_nodes(&mut self, index: &PoolIndex) -> Result<Vec<u32>> {
        self.put_count(index.nodes.len())?;
        let mut ordinals = vec![NONE; index.nodes.slots() as usize];
        let mut next = 0;
        let mut stack: Vec<u32> = index
            .nodes
            .indices()
            .filter(|node| index.nodes.get(*node).links.parent == NIL)
            .collect();
        while let Some(node) = stack.pop() {
            if let Some(ordinal) = ordinals.get_mut(node as usize) {
                *ordinal = next;
            }
            next += 1;
            let parent = index.nodes.get(node).links.parent;
            self.write_node(
                index,
                node,
                ordinals.get(parent as usize).copied().unwrap_or(NONE),
            )?;
            stack.extend(index.nodes.children(node));
        }
        Ok(ordinals)
    }

    fn write_node(&mut self, index: &PoolIndex, node: u32, parent: u32) -> Result<()> {
        let held = index.nodes.get(node);
        self.put_u32(parent)?;
        self.put_u64(held.key)?;
        self.put_u32(held.tokens())?;
        self.put_u32(held.flags())?;
        self.put_u32(held.used)?;
        self.put(&held.text)?;
        if held.is(ROOT) && held.is(LORA) {
            let adapter = index.adapters.get(node).map_or(0, |adapter| adapter.0);
            self.put_u64(adapter)?;
        }
        if held.is(IDS) {
            let chain = index
                .id_chain(node)
                .map(|chain| chain.to_bytes())
                .unwrap_or_default();
            self.put(&chain)?;
        }
        let mut owned: Vec<_> = index.blocks.owned(held.owns).collect();
        owned.reverse();
        self.put_count(owned.len())?;
        for owner in owned {
            let block = index.blocks.tree.get(owner.block);
            self.put_u64(block.hash.0)?;
            self.put_u32(owner.tokens)?;
            self.put(&[u8::from(block.is_ids())])?;
        }
        Ok(())
    }

    fn write_replica(
        &mut self,
        name: &str,
        replica: &Replica,
        chunk_tokens: u32,
        ordinals: &[u32],
    ) -> Result<()> {
        self.put_count(name.len())?;
        self.put(name.as_bytes())?;
        match replica.position {
            None => self.put(&[0])?,
            Some(position) => {
                self.put(&[1])?;
                self.put_u64(position.sequence)?;
                self.put(&position.digest)?;
            }
        }
        self.put(&[u8::from(replica.groups.main.is_some())])?;
        self.put_group(replica.groups.main.flatten())?;
        self.put_count(replica.groups.seen.len())?;
        for (group, dense) in &replica.groups.seen {
            self.put_group(*group)?;
            self.put(&[u8::from(*dense)])?;
        }
        self.put_u32(chunk_tokens)?;
        let states = &replica.checkpoints;
        self.put_count(states.groups().len())?;
        for group in states.groups() {
            self.put_u32(*group)?;
        }
        self.put_count(states.iter().len())?;
        for (group, hash, copies) in states.iter() {
            self.put_u32(group)?;
            self.put_u64(hash)?;
            self.put(&copies.to_le_bytes())?;
        }
        self.put_count(replica.held.len())?;
        for (hash, node, copies) in replica.held.iter() {
            self.put_u64(hash)?;
            self.put_u32(ordinals.get(node as usize).copied().unwrap_or(NONE))?;
            self.put(&copies.gpu.to_le_bytes())?;
            self.put(&copies.lower.to_le_bytes())?;
        }
        Ok(())
    }

    fn put_group(&mut self, group: Option<u32>) -> Result<()> {
        self.put(&[u8::from(group.is_some())])?;
        self.put_u32(group.unwrap_or(0))
    }
}
